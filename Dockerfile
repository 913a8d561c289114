# syntax=docker/dockerfile:1
# tuner in a small image that does not run as root. TORCH=cpu leaves CUDA out.
# Pinned: a tag may move. To renew: docker buildx imagetools inspect python:3.12-slim
ARG PYTHON=python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
FROM $PYTHON AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/tuner
ENV PATH=/opt/tuner/bin:$PATH
WORKDIR /src

# torch first, in a layer of its own: it is large and changes rarely. PyPI's wheel is the one with CUDA.
ARG TORCH=cuda
COPY constraints.txt ./
RUN case "$TORCH" in \
      cpu) pip install --constraint constraints.txt --index-url https://download.pytorch.org/whl/cpu torch ;; \
      cuda) pip install --constraint constraints.txt torch ;; \
      *) echo "TORCH is cpu or cuda, not $TORCH" >&2; exit 2 ;; \
    esac
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY studies studies
COPY storage/kubernetes storage/kubernetes
COPY tuner tuner
RUN pip install --constraint constraints.txt ".[pictures]"

FROM $PYTHON
# With CUDA a C compiler too: Triton builds the launchers of its kernels with it, for --backend triton and compile.
ARG TORCH=cuda
RUN if [ "$TORCH" = cuda ]; then \
      apt-get update \
      && apt-get install --yes --no-install-recommends gcc libc6-dev \
      && rm -rf /var/lib/apt/lists/*; \
    fi
RUN useradd --uid 1000 --create-home tuner \
 && install --directory --owner=tuner --group=tuner /var/lib/tuner /var/lib/tuner/cache /var/lib/tuner/tmp
COPY --from=build /opt/tuner /opt/tuner
COPY --chmod=755 storage/docker/entrypoint.sh /usr/local/bin/tuner-entrypoint
ENV PATH=/opt/tuner/bin:$PATH PYTHONUNBUFFERED=1
USER tuner
WORKDIR /home/tuner
ENTRYPOINT ["tuner-entrypoint"]
CMD ["--help"]
