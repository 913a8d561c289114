-- Three roles for a database of studies, none of them a superuser. An administrator runs this in that database, before
-- or after the tables exist, and may run it again:
--
--   psql --dbname=tuner --file=storage/postgres/roles.sql
--
-- tuner_owner   owns the tables; for 'tuner db init' only
-- tuner_worker  launches and works: reads and writes rows, makes and drops nothing
-- tuner_reader  looks: status, best, dashboard
--
-- A role without a password cannot log in by scram: \password tuner_worker in psql gives it one.

DO $$
DECLARE
  role text;
BEGIN
  FOREACH role IN ARRAY ARRAY['tuner_owner', 'tuner_worker', 'tuner_reader'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
      EXECUTE format('CREATE ROLE %I', role);
    END IF;
    EXECUTE format('ALTER ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS', role);
  END LOOP;

  EXECUTE format('ALTER DATABASE %I OWNER TO tuner_owner', current_database());
  EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
  EXECUTE format('GRANT CONNECT ON DATABASE %I TO tuner_worker, tuner_reader', current_database());
END $$;

-- A worker that froze inside a transaction lets go of its locks; a question that takes minutes is not the dashboard's.
ALTER ROLE tuner_worker SET idle_in_transaction_session_timeout = '5min';
ALTER ROLE tuner_reader SET idle_in_transaction_session_timeout = '5min';
ALTER ROLE tuner_reader SET statement_timeout = '2min';
ALTER ROLE tuner_reader SET default_transaction_read_only = on; -- a courtesy: what it may not do is said below

ALTER SCHEMA public OWNER TO tuner_owner;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO tuner_worker, tuner_reader;

-- Tables that exist, whoever made them.
DO $$
DECLARE
  name text;
BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
    EXECUTE format('ALTER TABLE public.%I OWNER TO tuner_owner', name);
  END LOOP;
  FOR name IN SELECT typname FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typtype = 'e' LOOP
    EXECUTE format('ALTER TYPE public.%I OWNER TO tuner_owner', name); -- Optuna's states and directions
  END LOOP;
END $$;
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC, tuner_worker, tuner_reader;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM PUBLIC, tuner_worker, tuner_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO tuner_worker;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO tuner_worker;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO tuner_reader;

-- Tables that the owner will make, with 'tuner db init'.
ALTER DEFAULT PRIVILEGES FOR ROLE tuner_owner IN SCHEMA public
  GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO tuner_worker;
ALTER DEFAULT PRIVILEGES FOR ROLE tuner_owner IN SCHEMA public
  GRANT USAGE ON SEQUENCES TO tuner_worker;
ALTER DEFAULT PRIVILEGES FOR ROLE tuner_owner IN SCHEMA public
  GRANT SELECT ON TABLES TO tuner_reader;

-- What says which version the tables have is the owner's alone ('tuner db init' sees to it for tables that it makes).
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['tuner_schema', 'version_info', 'alembic_version'] LOOP
    IF to_regclass('public.' || name) IS NOT NULL THEN
      EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON public.%I FROM tuner_worker', name);
    END IF;
  END LOOP;
END $$;
