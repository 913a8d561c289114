"""Two GPUs that train one network together, beside one."""
