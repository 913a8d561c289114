CREATE TYPE public.studydirection AS ENUM (
    'NOT_SET',
    'MINIMIZE',
    'MAXIMIZE'
);
CREATE TYPE public.trialintermediatevaluetype AS ENUM (
    'FINITE',
    'INF_POS',
    'INF_NEG',
    'NAN'
);
CREATE TYPE public.trialstate AS ENUM (
    'RUNNING',
    'COMPLETE',
    'PRUNED',
    'FAIL',
    'WAITING'
);
CREATE TYPE public.trialvaluetype AS ENUM (
    'FINITE',
    'INF_POS',
    'INF_NEG'
);
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.studies (
    study_id integer NOT NULL,
    study_name character varying(512) NOT NULL
);
CREATE SEQUENCE public.studies_study_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.studies_study_id_seq OWNED BY public.studies.study_id;
CREATE TABLE public.study_directions (
    study_direction_id integer NOT NULL,
    direction public.studydirection NOT NULL,
    study_id integer NOT NULL,
    objective integer NOT NULL
);
CREATE SEQUENCE public.study_directions_study_direction_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.study_directions_study_direction_id_seq OWNED BY public.study_directions.study_direction_id;
CREATE TABLE public.study_system_attributes (
    study_system_attribute_id integer NOT NULL,
    study_id integer,
    key character varying(512),
    value_json text
);
CREATE SEQUENCE public.study_system_attributes_study_system_attribute_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.study_system_attributes_study_system_attribute_id_seq OWNED BY public.study_system_attributes.study_system_attribute_id;
CREATE TABLE public.study_user_attributes (
    study_user_attribute_id integer NOT NULL,
    study_id integer,
    key character varying(512),
    value_json text
);
CREATE SEQUENCE public.study_user_attributes_study_user_attribute_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.study_user_attributes_study_user_attribute_id_seq OWNED BY public.study_user_attributes.study_user_attribute_id;
CREATE TABLE public.trial_heartbeats (
    trial_heartbeat_id integer NOT NULL,
    trial_id integer NOT NULL,
    heartbeat timestamp without time zone NOT NULL
);
CREATE SEQUENCE public.trial_heartbeats_trial_heartbeat_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trial_heartbeats_trial_heartbeat_id_seq OWNED BY public.trial_heartbeats.trial_heartbeat_id;
CREATE TABLE public.trial_intermediate_values (
    trial_intermediate_value_id integer NOT NULL,
    trial_id integer NOT NULL,
    step integer NOT NULL,
    intermediate_value double precision,
    intermediate_value_type public.trialintermediatevaluetype NOT NULL
);
CREATE SEQUENCE public.trial_intermediate_values_trial_intermediate_value_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trial_intermediate_values_trial_intermediate_value_id_seq OWNED BY public.trial_intermediate_values.trial_intermediate_value_id;
CREATE TABLE public.trial_params (
    param_id integer NOT NULL,
    trial_id integer,
    param_name character varying(512),
    param_value double precision,
    distribution_json text
);
CREATE SEQUENCE public.trial_params_param_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trial_params_param_id_seq OWNED BY public.trial_params.param_id;
CREATE TABLE public.trial_system_attributes (
    trial_system_attribute_id integer NOT NULL,
    trial_id integer,
    key character varying(512),
    value_json text
);
CREATE SEQUENCE public.trial_system_attributes_trial_system_attribute_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trial_system_attributes_trial_system_attribute_id_seq OWNED BY public.trial_system_attributes.trial_system_attribute_id;
CREATE TABLE public.trial_user_attributes (
    trial_user_attribute_id integer NOT NULL,
    trial_id integer,
    key character varying(512),
    value_json text
);
CREATE SEQUENCE public.trial_user_attributes_trial_user_attribute_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trial_user_attributes_trial_user_attribute_id_seq OWNED BY public.trial_user_attributes.trial_user_attribute_id;
CREATE TABLE public.trial_values (
    trial_value_id integer NOT NULL,
    trial_id integer NOT NULL,
    objective integer NOT NULL,
    value double precision,
    value_type public.trialvaluetype NOT NULL
);
CREATE SEQUENCE public.trial_values_trial_value_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trial_values_trial_value_id_seq OWNED BY public.trial_values.trial_value_id;
CREATE TABLE public.trials (
    trial_id integer NOT NULL,
    number integer,
    study_id integer,
    state public.trialstate NOT NULL,
    datetime_start timestamp without time zone,
    datetime_complete timestamp without time zone
);
CREATE SEQUENCE public.trials_trial_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trials_trial_id_seq OWNED BY public.trials.trial_id;
CREATE TABLE public.tuner_claims (
    claim_id integer NOT NULL,
    study_id integer NOT NULL,
    token character varying(32) NOT NULL,
    worker character varying(120) NOT NULL,
    state character varying(12) NOT NULL,
    leased_until double precision NOT NULL,
    claimed_at double precision NOT NULL,
    trial_id integer,
    trial_number integer,
    result text,
    told boolean NOT NULL
);
CREATE SEQUENCE public.tuner_claims_claim_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.tuner_claims_claim_id_seq OWNED BY public.tuner_claims.claim_id;
CREATE TABLE public.tuner_epochs (
    study_id integer NOT NULL,
    trial_number integer NOT NULL,
    claim_id integer NOT NULL,
    epoch integer NOT NULL,
    train_loss double precision,
    val_loss double precision,
    learning_rate double precision,
    elapsed_s double precision NOT NULL
);
CREATE TABLE public.tuner_schema (
    version integer NOT NULL
);
CREATE TABLE public.tuner_studies (
    study_id integer NOT NULL,
    definition text NOT NULL,
    definition_hash character varying(64) NOT NULL,
    budget integer NOT NULL,
    device_model character varying(200),
    created_at double precision NOT NULL
);
CREATE TABLE public.tuner_workers (
    worker character varying(120) NOT NULL,
    study_id integer NOT NULL,
    host character varying(120) NOT NULL,
    pid integer NOT NULL,
    device character varying(200) NOT NULL,
    device_uuid character varying(120) NOT NULL,
    started_at double precision NOT NULL,
    seen_at double precision NOT NULL,
    trial_number integer,
    epoch integer,
    val_loss double precision,
    stopped boolean NOT NULL
);
CREATE TABLE public.version_info (
    version_info_id integer NOT NULL,
    schema_version integer,
    library_version character varying(256),
    CONSTRAINT version_info_version_info_id_check CHECK ((version_info_id = 1))
);
ALTER TABLE ONLY public.studies ALTER COLUMN study_id SET DEFAULT nextval('public.studies_study_id_seq'::regclass);
ALTER TABLE ONLY public.study_directions ALTER COLUMN study_direction_id SET DEFAULT nextval('public.study_directions_study_direction_id_seq'::regclass);
ALTER TABLE ONLY public.study_system_attributes ALTER COLUMN study_system_attribute_id SET DEFAULT nextval('public.study_system_attributes_study_system_attribute_id_seq'::regclass);
ALTER TABLE ONLY public.study_user_attributes ALTER COLUMN study_user_attribute_id SET DEFAULT nextval('public.study_user_attributes_study_user_attribute_id_seq'::regclass);
ALTER TABLE ONLY public.trial_heartbeats ALTER COLUMN trial_heartbeat_id SET DEFAULT nextval('public.trial_heartbeats_trial_heartbeat_id_seq'::regclass);
ALTER TABLE ONLY public.trial_intermediate_values ALTER COLUMN trial_intermediate_value_id SET DEFAULT nextval('public.trial_intermediate_values_trial_intermediate_value_id_seq'::regclass);
ALTER TABLE ONLY public.trial_params ALTER COLUMN param_id SET DEFAULT nextval('public.trial_params_param_id_seq'::regclass);
ALTER TABLE ONLY public.trial_system_attributes ALTER COLUMN trial_system_attribute_id SET DEFAULT nextval('public.trial_system_attributes_trial_system_attribute_id_seq'::regclass);
ALTER TABLE ONLY public.trial_user_attributes ALTER COLUMN trial_user_attribute_id SET DEFAULT nextval('public.trial_user_attributes_trial_user_attribute_id_seq'::regclass);
ALTER TABLE ONLY public.trial_values ALTER COLUMN trial_value_id SET DEFAULT nextval('public.trial_values_trial_value_id_seq'::regclass);
ALTER TABLE ONLY public.trials ALTER COLUMN trial_id SET DEFAULT nextval('public.trials_trial_id_seq'::regclass);
ALTER TABLE ONLY public.tuner_claims ALTER COLUMN claim_id SET DEFAULT nextval('public.tuner_claims_claim_id_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('v3.2.0.a');
INSERT INTO public.studies VALUES (1, 'demo-rmsnorm');
INSERT INTO public.study_directions VALUES (1, 'MINIMIZE', 1, 0);
INSERT INTO public.study_directions VALUES (2, 'MINIMIZE', 1, 1);
INSERT INTO public.study_system_attributes VALUES (1, 1, 'study:metric_names', '["wall_clock_s", "test_mql"]');
INSERT INTO public.study_system_attributes VALUES (2, 1, 'dashboard:note_str:0', '"## rmsnorm on demo\nArchitecture: `rmsnorm` (channel-first, Conv1d, RMSNorm).\n### The two objectives, both minimised\n- **wall_clock_s**: seconds of training and validation, from the first step until early stopping ends the run (no validation loss better by 1e-05 for 10 epochs). Warm-up, loading and the final test are not in it. The trial had its device to itself while the clock ran; where something else was seen there, the attribute `contaminated` is true.\n- **test_mql**: mean quantile loss on the test split, in the units of the data, of all series together.\n\nA trial that reached the limit of 200 epochs has `converged` false: its time says when it was cut, not when it converged. tuner leaves it off the front; the dashboard''s own plot draws it like the others.\n### The search space\n| hyperparameter | range | why |\n|---|---|---|\n| learning_rate | 3e-05 to 0.03, log | RMSNorm keeps the scale of its input in check without centring it and usually bears a larger rate |\n| weight_decay | 0, or 1e-06 to 0.1, log | the team used none: exactly 0 is part of the range, below its low end |\n| dropout | 0 to 0.5, linear | from none to half; the team''s 0.1 is near the low end of what small mixers use |\n| hidden_size | 32 to 256, powers of two | powers of two fill tensor-core tiles; the feed-forward size follows it; 64 is the published default |\n| batch_size | 64 to 1024, powers of two | smaller means more, noisier steps an epoch; beyond 1024 an epoch of the reference job has fewer than 21 steps |\n\nTrial 0 is the default configuration, unchanged: everything else is measured against it. A `weight_decay` of 0 means exactly none."');
INSERT INTO public.study_system_attributes VALUES (3, 1, 'dashboard:note_ver', '1');
INSERT INTO public.study_user_attributes VALUES (1, 1, 'tuner_definition_hash', '"2c1ca9efccac831f757933a5be49c85288daf68a77070149d25ff16c374ce6b1"');
INSERT INTO public.study_user_attributes VALUES (2, 1, 'variant', '"rmsnorm"');
INSERT INTO public.study_user_attributes VALUES (3, 1, 'task', '"demo"');
INSERT INTO public.trial_params VALUES (1, 1, 'learning_rate', 0.0001, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 3e-05, "high": 0.03, "log": true}}');
INSERT INTO public.trial_params VALUES (2, 1, 'weight_decay', 0, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.1, "log": false}}');
INSERT INTO public.trial_params VALUES (3, 1, 'dropout', 0.1, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.5, "log": false}}');
INSERT INTO public.trial_params VALUES (4, 1, 'hidden_size', 64, '{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 32, "high": 256}}');
INSERT INTO public.trial_params VALUES (5, 1, 'batch_size', 256, '{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 64, "high": 1024}}');
INSERT INTO public.trial_params VALUES (6, 2, 'learning_rate', 5.082134128572817e-05, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 3e-05, "high": 0.03, "log": true}}');
INSERT INTO public.trial_params VALUES (7, 2, 'weight_decay', 0.005988618168538226, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.1, "log": false}}');
INSERT INTO public.trial_params VALUES (8, 2, 'dropout', 0.21920461572044675, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.5, "log": false}}');
INSERT INTO public.trial_params VALUES (9, 2, 'hidden_size', 128, '{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 32, "high": 256}}');
INSERT INTO public.trial_params VALUES (10, 2, 'batch_size', 1024, '{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 64, "high": 1024}}');
INSERT INTO public.trial_params VALUES (11, 3, 'learning_rate', 0.0012376814045065656, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 3e-05, "high": 0.03, "log": true}}');
INSERT INTO public.trial_params VALUES (12, 3, 'weight_decay', 0.00016921818022626165, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.1, "log": false}}');
INSERT INTO public.trial_params VALUES (13, 3, 'dropout', 0.03602556667988077, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.5, "log": false}}');
INSERT INTO public.trial_params VALUES (14, 3, 'hidden_size', 64, '{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 32, "high": 256}}');
INSERT INTO public.trial_params VALUES (15, 3, 'batch_size', 256, '{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 64, "high": 1024}}');
INSERT INTO public.trial_params VALUES (16, 4, 'learning_rate', 0.001808184246331715, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 3e-05, "high": 0.03, "log": true}}');
INSERT INTO public.trial_params VALUES (17, 4, 'weight_decay', 0.01591820688307799, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.1, "log": false}}');
INSERT INTO public.trial_params VALUES (18, 4, 'dropout', 0.026249776099326716, '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.5, "log": false}}');
INSERT INTO public.trial_params VALUES (19, 4, 'hidden_size', 54, '{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 32, "high": 256}}');
INSERT INTO public.trial_params VALUES (20, 4, 'batch_size', 533, '{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 64, "high": 1024}}');
INSERT INTO public.trial_system_attributes VALUES (1, 1, 'fixed_params', '{"learning_rate": 0.0001, "weight_decay": 0.0, "dropout": 0.1, "hidden_size": 64, "batch_size": 256}');
INSERT INTO public.trial_user_attributes VALUES (1, 1, 'default', 'true');
INSERT INTO public.trial_user_attributes VALUES (2, 1, 'stopped_by', '"converged"');
INSERT INTO public.trial_user_attributes VALUES (3, 1, 'converged', 'true');
INSERT INTO public.trial_user_attributes VALUES (4, 1, 'epochs', '30');
INSERT INTO public.trial_user_attributes VALUES (5, 1, 'val_loss', '0.2619');
INSERT INTO public.trial_user_attributes VALUES (6, 1, 'val_mql', '1.0475');
INSERT INTO public.trial_user_attributes VALUES (7, 1, 's_per_epoch', '0.2112');
INSERT INTO public.trial_user_attributes VALUES (8, 1, 'setup_s', '0.1');
INSERT INTO public.trial_user_attributes VALUES (9, 1, 'backend', '"eager"');
INSERT INTO public.trial_user_attributes VALUES (10, 1, 'precision', '"fp32"');
INSERT INTO public.trial_user_attributes VALUES (11, 1, 'seed', '2968811710');
INSERT INTO public.trial_user_attributes VALUES (12, 1, 'contaminated', 'false');
INSERT INTO public.trial_user_attributes VALUES (13, 1, 'device', '"Example CPU, 2 cores"');
INSERT INTO public.trial_user_attributes VALUES (14, 1, 'device_label', '"cores 0, 1"');
INSERT INTO public.trial_user_attributes VALUES (15, 1, 'versions', '{"tuner": "0.1.0"}');
INSERT INTO public.trial_user_attributes VALUES (16, 2, 'stopped_by', '"converged"');
INSERT INTO public.trial_user_attributes VALUES (17, 2, 'converged', 'true');
INSERT INTO public.trial_user_attributes VALUES (18, 2, 'epochs', '34');
INSERT INTO public.trial_user_attributes VALUES (19, 2, 'val_loss', '0.2498');
INSERT INTO public.trial_user_attributes VALUES (20, 2, 'val_mql', '0.9994');
INSERT INTO public.trial_user_attributes VALUES (21, 2, 's_per_epoch', '0.3478');
INSERT INTO public.trial_user_attributes VALUES (22, 2, 'setup_s', '0.1');
INSERT INTO public.trial_user_attributes VALUES (23, 2, 'backend', '"eager"');
INSERT INTO public.trial_user_attributes VALUES (24, 2, 'precision', '"fp32"');
INSERT INTO public.trial_user_attributes VALUES (25, 2, 'seed', '1835504127');
INSERT INTO public.trial_user_attributes VALUES (26, 2, 'contaminated', 'false');
INSERT INTO public.trial_user_attributes VALUES (27, 2, 'device', '"Example CPU, 2 cores"');
INSERT INTO public.trial_user_attributes VALUES (28, 2, 'device_label', '"cores 0, 1"');
INSERT INTO public.trial_user_attributes VALUES (29, 2, 'versions', '{"tuner": "0.1.0"}');
INSERT INTO public.trial_user_attributes VALUES (30, 3, 'stopped_by', '"converged"');
INSERT INTO public.trial_user_attributes VALUES (31, 3, 'converged', 'true');
INSERT INTO public.trial_user_attributes VALUES (32, 3, 'epochs', '23');
INSERT INTO public.trial_user_attributes VALUES (33, 3, 'val_loss', '0.2479');
INSERT INTO public.trial_user_attributes VALUES (34, 3, 'val_mql', '0.9915');
INSERT INTO public.trial_user_attributes VALUES (35, 3, 's_per_epoch', '0.2112');
INSERT INTO public.trial_user_attributes VALUES (36, 3, 'setup_s', '0.1');
INSERT INTO public.trial_user_attributes VALUES (37, 3, 'backend', '"eager"');
INSERT INTO public.trial_user_attributes VALUES (38, 3, 'precision', '"fp32"');
INSERT INTO public.trial_user_attributes VALUES (39, 3, 'seed', '2834126987');
INSERT INTO public.trial_user_attributes VALUES (40, 3, 'contaminated', 'false');
INSERT INTO public.trial_user_attributes VALUES (41, 3, 'device', '"Example CPU, 2 cores"');
INSERT INTO public.trial_user_attributes VALUES (42, 3, 'device_label', '"cores 0, 1"');
INSERT INTO public.trial_user_attributes VALUES (43, 3, 'versions', '{"tuner": "0.1.0"}');
INSERT INTO public.trial_values VALUES (1, 1, 0, 6.336, 'FINITE');
INSERT INTO public.trial_values VALUES (2, 1, 1, 1.0475, 'FINITE');
INSERT INTO public.trial_values VALUES (3, 2, 0, 11.8252, 'FINITE');
INSERT INTO public.trial_values VALUES (4, 2, 1, 0.9994, 'FINITE');
INSERT INTO public.trial_values VALUES (5, 3, 0, 4.8576, 'FINITE');
INSERT INTO public.trial_values VALUES (6, 3, 1, 0.9915, 'FINITE');
INSERT INTO public.trials VALUES (1, 0, 1, 'COMPLETE', '2026-11-20 13:45:15.238721', '2026-11-20 13:45:15.384408');
INSERT INTO public.trials VALUES (2, 1, 1, 'COMPLETE', '2026-11-20 13:45:15.426713', '2026-11-20 13:45:15.58533');
INSERT INTO public.trials VALUES (3, 2, 1, 'COMPLETE', '2026-11-20 13:45:15.638468', '2026-11-20 13:45:15.743268');
INSERT INTO public.trials VALUES (4, 3, 1, 'WAITING', '2026-11-20 13:45:15.954258', NULL);
INSERT INTO public.tuner_claims VALUES (1, 1, '50e3380e32e64a79a6a98dfa7a2901d7', 'recorder', 'finished', 1795182375.197759, 1795182315.197768, 1, 0, '{"state": "COMPLETE", "values": [6.336, 1.0475], "attributes": {"stopped_by": "converged", "converged": true, "epochs": 30, "val_loss": 0.2619, "val_mql": 1.0475, "s_per_epoch": 0.2112, "setup_s": 0.1, "backend": "eager", "precision": "fp32", "seed": 2968811710, "contaminated": false, "device": "Example CPU, 2 cores", "device_label": "cores 0, 1", "versions": {"tuner": "0.1.0"}}}', true);
INSERT INTO public.tuner_claims VALUES (2, 1, '5f1433bbe8b341be999d1f8f2da0526d', 'recorder', 'finished', 1795182375.401474, 1795182315.401539, 2, 1, '{"state": "COMPLETE", "values": [11.8252, 0.9994], "attributes": {"stopped_by": "converged", "converged": true, "epochs": 34, "val_loss": 0.2498, "val_mql": 0.9994, "s_per_epoch": 0.3478, "setup_s": 0.1, "backend": "eager", "precision": "fp32", "seed": 1835504127, "contaminated": false, "device": "Example CPU, 2 cores", "device_label": "cores 0, 1", "versions": {"tuner": "0.1.0"}}}', true);
INSERT INTO public.tuner_claims VALUES (3, 1, '48f4cf4026524ca9bc46808ecd99e2a6', 'recorder', 'finished', 1795182375.6056, 1795182315.60561, 3, 2, '{"state": "COMPLETE", "values": [4.8576, 0.9915], "attributes": {"stopped_by": "converged", "converged": true, "epochs": 23, "val_loss": 0.2479, "val_mql": 0.9915, "s_per_epoch": 0.2112, "setup_s": 0.1, "backend": "eager", "precision": "fp32", "seed": 2834126987, "contaminated": false, "device": "Example CPU, 2 cores", "device_label": "cores 0, 1", "versions": {"tuner": "0.1.0"}}}', true);
INSERT INTO public.tuner_claims VALUES (4, 1, 'db18e1ee885c4425b2ce39429211e7af', 'host-2', 'returned', 1795182375.935182, 1795182315.935191, 4, 3, NULL, false);
INSERT INTO public.tuner_epochs VALUES (1, 0, 1, 1, 1, 2, 0.0009000000000000001, 0.3333333333333333);
INSERT INTO public.tuner_epochs VALUES (1, 0, 1, 2, 0.5, NULL, 0.0008100000000000001, 0.6666666666666666);
INSERT INTO public.tuner_epochs VALUES (1, 0, 1, 3, 0.3333333333333333, 0.6666666666666666, 0.0007290000000000002, 1);
INSERT INTO public.tuner_epochs VALUES (1, 0, 1, 4, 0.25, 0.5, 0.0006561000000000001, 1.3333333333333333);
INSERT INTO public.tuner_epochs VALUES (1, 1, 2, 1, 1, 2, 0.0009000000000000001, 0.3333333333333333);
INSERT INTO public.tuner_epochs VALUES (1, 1, 2, 2, 0.5, NULL, 0.0008100000000000001, 0.6666666666666666);
INSERT INTO public.tuner_epochs VALUES (1, 1, 2, 3, 0.3333333333333333, 0.6666666666666666, 0.0007290000000000002, 1);
INSERT INTO public.tuner_epochs VALUES (1, 1, 2, 4, 0.25, 0.5, 0.0006561000000000001, 1.3333333333333333);
INSERT INTO public.tuner_epochs VALUES (1, 2, 3, 1, 1, 2, 0.0009000000000000001, 0.3333333333333333);
INSERT INTO public.tuner_epochs VALUES (1, 2, 3, 2, 0.5, NULL, 0.0008100000000000001, 0.6666666666666666);
INSERT INTO public.tuner_epochs VALUES (1, 2, 3, 3, 0.3333333333333333, 0.6666666666666666, 0.0007290000000000002, 1);
INSERT INTO public.tuner_epochs VALUES (1, 2, 3, 4, 0.25, 0.5, 0.0006561000000000001, 1.3333333333333333);
INSERT INTO public.tuner_schema VALUES (1);
INSERT INTO public.tuner_studies VALUES (1, '{"architecture": {"model": "rmsnorm", "settings": {"n_blocks": 2}}, "core_change": "channel-first, Conv1d, RMSNorm", "data_hash": "b11a790cd50a359d8c6c3dc0a5f0edc19f485529eb84f78dcb0393c0d1e8ff7e", "defaults": {"batch_size": 256, "dropout": 0.1, "hidden_size": 64, "learning_rate": 0.0001, "weight_decay": 0.0}, "format": 1, "model_source": null, "mql_split": "test", "objectives": ["wall_clock_s", "test_mql"], "seeds_per_trial": 1, "space": {"batch_size": {"high": 1024, "low": 64}, "dropout": {"high": 0.5, "low": 0.0, "scale": "linear", "zero": false}, "hidden_size": {"high": 256, "low": 32}, "learning_rate": {"high": 0.03, "low": 3e-05, "scale": "log", "zero": false}, "weight_decay": {"high": 0.1, "low": 1e-06, "scale": "log", "zero": true}}, "task": {"calendar": ["hour", "day_of_week"], "eval_quantiles": [0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95], "frequency": "h", "future_covariates": [], "horizon": 6, "input_size": 24, "name": "demo", "objective_series": null, "past_covariates": [], "quantiles": [0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99], "source": {"kind": "demo", "rows": 400, "seed": 0}, "split": [0.6, 0.2, 0.2], "static_id": true, "target_columns": ["load", "heat", "flow"]}, "training": {"backend": "auto", "gradient_clip": 1.0, "learning_rate_decay": 0.999, "max_epochs": 200, "min_delta": 1e-05, "patience": 10, "precision": "fp32", "time_limit_s": null}, "variant": "rmsnorm"}', '2c1ca9efccac831f757933a5be49c85288daf68a77070149d25ff16c374ce6b1', 9, 'Example CPU, 2 cores', 1795182315.128813);
INSERT INTO public.tuner_workers VALUES ('host-1', 1, 'host', 1, 'cores 0, 1', 'cpu-0', 1795182315.917575, 1795182315.923099, NULL, NULL, NULL, true);
INSERT INTO public.version_info VALUES (1, 12, '5.0.0');
SELECT pg_catalog.setval('public.studies_study_id_seq', 1, true);
SELECT pg_catalog.setval('public.study_directions_study_direction_id_seq', 2, true);
SELECT pg_catalog.setval('public.study_system_attributes_study_system_attribute_id_seq', 3, true);
SELECT pg_catalog.setval('public.study_user_attributes_study_user_attribute_id_seq', 3, true);
SELECT pg_catalog.setval('public.trial_heartbeats_trial_heartbeat_id_seq', 1, false);
SELECT pg_catalog.setval('public.trial_intermediate_values_trial_intermediate_value_id_seq', 1, false);
SELECT pg_catalog.setval('public.trial_params_param_id_seq', 20, true);
SELECT pg_catalog.setval('public.trial_system_attributes_trial_system_attribute_id_seq', 1, true);
SELECT pg_catalog.setval('public.trial_user_attributes_trial_user_attribute_id_seq', 43, true);
SELECT pg_catalog.setval('public.trial_values_trial_value_id_seq', 6, true);
SELECT pg_catalog.setval('public.trials_trial_id_seq', 4, true);
SELECT pg_catalog.setval('public.tuner_claims_claim_id_seq', 4, true);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.studies
    ADD CONSTRAINT studies_pkey PRIMARY KEY (study_id);
ALTER TABLE ONLY public.study_directions
    ADD CONSTRAINT study_directions_pkey PRIMARY KEY (study_direction_id);
ALTER TABLE ONLY public.study_directions
    ADD CONSTRAINT study_directions_study_id_objective_key UNIQUE (study_id, objective);
ALTER TABLE ONLY public.study_system_attributes
    ADD CONSTRAINT study_system_attributes_pkey PRIMARY KEY (study_system_attribute_id);
ALTER TABLE ONLY public.study_system_attributes
    ADD CONSTRAINT study_system_attributes_study_id_key_key UNIQUE (study_id, key);
ALTER TABLE ONLY public.study_user_attributes
    ADD CONSTRAINT study_user_attributes_pkey PRIMARY KEY (study_user_attribute_id);
ALTER TABLE ONLY public.study_user_attributes
    ADD CONSTRAINT study_user_attributes_study_id_key_key UNIQUE (study_id, key);
ALTER TABLE ONLY public.trial_heartbeats
    ADD CONSTRAINT trial_heartbeats_pkey PRIMARY KEY (trial_heartbeat_id);
ALTER TABLE ONLY public.trial_heartbeats
    ADD CONSTRAINT trial_heartbeats_trial_id_key UNIQUE (trial_id);
ALTER TABLE ONLY public.trial_intermediate_values
    ADD CONSTRAINT trial_intermediate_values_pkey PRIMARY KEY (trial_intermediate_value_id);
ALTER TABLE ONLY public.trial_intermediate_values
    ADD CONSTRAINT trial_intermediate_values_trial_id_step_key UNIQUE (trial_id, step);
ALTER TABLE ONLY public.trial_params
    ADD CONSTRAINT trial_params_pkey PRIMARY KEY (param_id);
ALTER TABLE ONLY public.trial_params
    ADD CONSTRAINT trial_params_trial_id_param_name_key UNIQUE (trial_id, param_name);
ALTER TABLE ONLY public.trial_system_attributes
    ADD CONSTRAINT trial_system_attributes_pkey PRIMARY KEY (trial_system_attribute_id);
ALTER TABLE ONLY public.trial_system_attributes
    ADD CONSTRAINT trial_system_attributes_trial_id_key_key UNIQUE (trial_id, key);
ALTER TABLE ONLY public.trial_user_attributes
    ADD CONSTRAINT trial_user_attributes_pkey PRIMARY KEY (trial_user_attribute_id);
ALTER TABLE ONLY public.trial_user_attributes
    ADD CONSTRAINT trial_user_attributes_trial_id_key_key UNIQUE (trial_id, key);
ALTER TABLE ONLY public.trial_values
    ADD CONSTRAINT trial_values_pkey PRIMARY KEY (trial_value_id);
ALTER TABLE ONLY public.trial_values
    ADD CONSTRAINT trial_values_trial_id_objective_key UNIQUE (trial_id, objective);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT trials_pkey PRIMARY KEY (trial_id);
ALTER TABLE ONLY public.tuner_claims
    ADD CONSTRAINT tuner_claims_pkey PRIMARY KEY (claim_id);
ALTER TABLE ONLY public.tuner_claims
    ADD CONSTRAINT tuner_claims_token_key UNIQUE (token);
ALTER TABLE ONLY public.tuner_epochs
    ADD CONSTRAINT tuner_epochs_pkey PRIMARY KEY (study_id, trial_number, claim_id, epoch);
ALTER TABLE ONLY public.tuner_studies
    ADD CONSTRAINT tuner_studies_pkey PRIMARY KEY (study_id);
ALTER TABLE ONLY public.tuner_workers
    ADD CONSTRAINT tuner_workers_pkey PRIMARY KEY (worker, study_id);
ALTER TABLE ONLY public.version_info
    ADD CONSTRAINT version_info_pkey PRIMARY KEY (version_info_id);
CREATE UNIQUE INDEX ix_studies_study_name ON public.studies USING btree (study_name);
CREATE INDEX ix_trials_study_id ON public.trials USING btree (study_id);
CREATE INDEX tuner_claims_by_study ON public.tuner_claims USING btree (study_id, state);
ALTER TABLE ONLY public.study_directions
    ADD CONSTRAINT study_directions_study_id_fkey FOREIGN KEY (study_id) REFERENCES public.studies(study_id);
ALTER TABLE ONLY public.study_system_attributes
    ADD CONSTRAINT study_system_attributes_study_id_fkey FOREIGN KEY (study_id) REFERENCES public.studies(study_id);
ALTER TABLE ONLY public.study_user_attributes
    ADD CONSTRAINT study_user_attributes_study_id_fkey FOREIGN KEY (study_id) REFERENCES public.studies(study_id);
ALTER TABLE ONLY public.trial_heartbeats
    ADD CONSTRAINT trial_heartbeats_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id);
ALTER TABLE ONLY public.trial_intermediate_values
    ADD CONSTRAINT trial_intermediate_values_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id);
ALTER TABLE ONLY public.trial_params
    ADD CONSTRAINT trial_params_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id);
ALTER TABLE ONLY public.trial_system_attributes
    ADD CONSTRAINT trial_system_attributes_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id);
ALTER TABLE ONLY public.trial_user_attributes
    ADD CONSTRAINT trial_user_attributes_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id);
ALTER TABLE ONLY public.trial_values
    ADD CONSTRAINT trial_values_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(trial_id);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT trials_study_id_fkey FOREIGN KEY (study_id) REFERENCES public.studies(study_id);
