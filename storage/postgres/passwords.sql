-- Gives the three roles the passwords that stand in files, one each; for psql. docker-compose.yml runs it when it creates
-- the database; after writing a new password into a file:
--
--   docker compose exec --user=postgres postgres psql --dbname=tuner --file=/docker-entrypoint-initdb.d/20-passwords.sql
--
-- The files are read here, so that no password stands on a command line.

\set ON_ERROR_STOP on
\set owner_password `cat "${TUNER_SECRETS:-/run/secrets}/owner-password"`
\set worker_password `cat "${TUNER_SECRETS:-/run/secrets}/worker-password"`
\set reader_password `cat "${TUNER_SECRETS:-/run/secrets}/reader-password"`

SET password_encryption = 'scram-sha-256';
ALTER ROLE tuner_owner PASSWORD :'owner_password';
ALTER ROLE tuner_worker PASSWORD :'worker_password';
ALTER ROLE tuner_reader PASSWORD :'reader_password';
