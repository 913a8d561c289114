-- For the server in docker-compose.yml: its superuser has no password, so nobody gets in as it over the network. Inside
-- the container the user postgres does:  docker compose exec --user=postgres postgres psql --dbname=tuner
ALTER ROLE postgres PASSWORD NULL;
