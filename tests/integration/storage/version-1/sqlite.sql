BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'demo-rmsnorm');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MINIMIZE',1,0);
INSERT INTO "study_directions" VALUES(2,'MINIMIZE',1,1);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_system_attributes" VALUES(1,1,'study:metric_names','["wall_clock_s", "test_mql"]');
INSERT INTO "study_system_attributes" VALUES(2,1,'dashboard:note_str:0','"## rmsnorm on demo\nArchitecture: `rmsnorm` (channel-first, Conv1d, RMSNorm).\n### The two objectives, both minimised\n- **wall_clock_s**: seconds of training and validation, from the first step until early stopping ends the run (no validation loss better by 1e-05 for 10 epochs). Warm-up, loading and the final test are not in it. The trial had its device to itself while the clock ran; where something else was seen there, the attribute `contaminated` is true.\n- **test_mql**: mean quantile loss on the test split, in the units of the data, of all series together.\n\nA trial that reached the limit of 200 epochs has `converged` false: its time says when it was cut, not when it converged. tuner leaves it off the front; the dashboard''s own plot draws it like the others.\n### The search space\n| hyperparameter | range | why |\n|---|---|---|\n| learning_rate | 3e-05 to 0.03, log | RMSNorm keeps the scale of its input in check without centring it and usually bears a larger rate |\n| weight_decay | 0, or 1e-06 to 0.1, log | the team used none: exactly 0 is part of the range, below its low end |\n| dropout | 0 to 0.5, linear | from none to half; the team''s 0.1 is near the low end of what small mixers use |\n| hidden_size | 32 to 256, powers of two | powers of two fill tensor-core tiles; the feed-forward size follows it; 64 is the published default |\n| batch_size | 64 to 1024, powers of two | smaller means more, noisier steps an epoch; beyond 1024 an epoch of the reference job has fewer than 21 steps |\n\nTrial 0 is the default configuration, unchanged: everything else is measured against it. A `weight_decay` of 0 means exactly none."');
INSERT INTO "study_system_attributes" VALUES(3,1,'dashboard:note_ver','1');
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_user_attributes" VALUES(1,1,'tuner_definition_hash','"2c1ca9efccac831f757933a5be49c85288daf68a77070149d25ff16c374ce6b1"');
INSERT INTO "study_user_attributes" VALUES(2,1,'variant','"rmsnorm"');
INSERT INTO "study_user_attributes" VALUES(3,1,'task','"demo"');
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_params" VALUES(1,1,'learning_rate',0.0001,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 3e-05, "high": 0.03, "log": true}}');
INSERT INTO "trial_params" VALUES(2,1,'weight_decay',0.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.1, "log": false}}');
INSERT INTO "trial_params" VALUES(3,1,'dropout',0.1,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.5, "log": false}}');
INSERT INTO "trial_params" VALUES(4,1,'hidden_size',64.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 32, "high": 256}}');
INSERT INTO "trial_params" VALUES(5,1,'batch_size',256.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 64, "high": 1024}}');
INSERT INTO "trial_params" VALUES(6,2,'learning_rate',5.08213412857281667846e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 3e-05, "high": 0.03, "log": true}}');
INSERT INTO "trial_params" VALUES(7,2,'weight_decay',5.98861816853822614969e-03,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.1, "log": false}}');
INSERT INTO "trial_params" VALUES(8,2,'dropout',2.1920461572044674936e-01,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.5, "log": false}}');
INSERT INTO "trial_params" VALUES(9,2,'hidden_size',128.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 32, "high": 256}}');
INSERT INTO "trial_params" VALUES(10,2,'batch_size',1024.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 64, "high": 1024}}');
INSERT INTO "trial_params" VALUES(11,3,'learning_rate',1.23768140450656563729e-03,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 3e-05, "high": 0.03, "log": true}}');
INSERT INTO "trial_params" VALUES(12,3,'weight_decay',1.69218180226261654102e-04,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.1, "log": false}}');
INSERT INTO "trial_params" VALUES(13,3,'dropout',3.60255666798807716588e-02,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.5, "log": false}}');
INSERT INTO "trial_params" VALUES(14,3,'hidden_size',64.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 32, "high": 256}}');
INSERT INTO "trial_params" VALUES(15,3,'batch_size',256.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 64, "high": 1024}}');
INSERT INTO "trial_params" VALUES(16,4,'learning_rate',3.74007614625961e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 3e-05, "high": 0.03, "log": true}}');
INSERT INTO "trial_params" VALUES(17,4,'weight_decay',1.79716073988586376442e-02,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.1, "log": false}}');
INSERT INTO "trial_params" VALUES(18,4,'dropout',4.82791234750944431297e-01,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.5, "log": false}}');
INSERT INTO "trial_params" VALUES(19,4,'hidden_size',204.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 32, "high": 256}}');
INSERT INTO "trial_params" VALUES(20,4,'batch_size',526.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 64, "high": 1024}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_system_attributes" VALUES(1,1,'fixed_params','{"learning_rate": 0.0001, "weight_decay": 0.0, "dropout": 0.1, "hidden_size": 64, "batch_size": 256}');
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'default','true');
INSERT INTO "trial_user_attributes" VALUES(2,1,'stopped_by','"converged"');
INSERT INTO "trial_user_attributes" VALUES(3,1,'converged','true');
INSERT INTO "trial_user_attributes" VALUES(4,1,'epochs','30');
INSERT INTO "trial_user_attributes" VALUES(5,1,'val_loss','0.2619');
INSERT INTO "trial_user_attributes" VALUES(6,1,'val_mql','1.0475');
INSERT INTO "trial_user_attributes" VALUES(7,1,'s_per_epoch','0.2112');
INSERT INTO "trial_user_attributes" VALUES(8,1,'setup_s','0.1');
INSERT INTO "trial_user_attributes" VALUES(9,1,'backend','"eager"');
INSERT INTO "trial_user_attributes" VALUES(10,1,'precision','"fp32"');
INSERT INTO "trial_user_attributes" VALUES(11,1,'seed','2968811710');
INSERT INTO "trial_user_attributes" VALUES(12,1,'contaminated','false');
INSERT INTO "trial_user_attributes" VALUES(13,1,'device','"Example CPU, 2 cores"');
INSERT INTO "trial_user_attributes" VALUES(14,1,'device_label','"cores 0, 1"');
INSERT INTO "trial_user_attributes" VALUES(15,1,'versions','{"tuner": "0.1.0"}');
INSERT INTO "trial_user_attributes" VALUES(16,2,'stopped_by','"converged"');
INSERT INTO "trial_user_attributes" VALUES(17,2,'converged','true');
INSERT INTO "trial_user_attributes" VALUES(18,2,'epochs','34');
INSERT INTO "trial_user_attributes" VALUES(19,2,'val_loss','0.2498');
INSERT INTO "trial_user_attributes" VALUES(20,2,'val_mql','0.9994');
INSERT INTO "trial_user_attributes" VALUES(21,2,'s_per_epoch','0.3478');
INSERT INTO "trial_user_attributes" VALUES(22,2,'setup_s','0.1');
INSERT INTO "trial_user_attributes" VALUES(23,2,'backend','"eager"');
INSERT INTO "trial_user_attributes" VALUES(24,2,'precision','"fp32"');
INSERT INTO "trial_user_attributes" VALUES(25,2,'seed','1835504127');
INSERT INTO "trial_user_attributes" VALUES(26,2,'contaminated','false');
INSERT INTO "trial_user_attributes" VALUES(27,2,'device','"Example CPU, 2 cores"');
INSERT INTO "trial_user_attributes" VALUES(28,2,'device_label','"cores 0, 1"');
INSERT INTO "trial_user_attributes" VALUES(29,2,'versions','{"tuner": "0.1.0"}');
INSERT INTO "trial_user_attributes" VALUES(30,3,'stopped_by','"converged"');
INSERT INTO "trial_user_attributes" VALUES(31,3,'converged','true');
INSERT INTO "trial_user_attributes" VALUES(32,3,'epochs','23');
INSERT INTO "trial_user_attributes" VALUES(33,3,'val_loss','0.2479');
INSERT INTO "trial_user_attributes" VALUES(34,3,'val_mql','0.9915');
INSERT INTO "trial_user_attributes" VALUES(35,3,'s_per_epoch','0.2112');
INSERT INTO "trial_user_attributes" VALUES(36,3,'setup_s','0.1');
INSERT INTO "trial_user_attributes" VALUES(37,3,'backend','"eager"');
INSERT INTO "trial_user_attributes" VALUES(38,3,'precision','"fp32"');
INSERT INTO "trial_user_attributes" VALUES(39,3,'seed','2834126987');
INSERT INTO "trial_user_attributes" VALUES(40,3,'contaminated','false');
INSERT INTO "trial_user_attributes" VALUES(41,3,'device','"Example CPU, 2 cores"');
INSERT INTO "trial_user_attributes" VALUES(42,3,'device_label','"cores 0, 1"');
INSERT INTO "trial_user_attributes" VALUES(43,3,'versions','{"tuner": "0.1.0"}');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,1,0,6.336,'FINITE');
INSERT INTO "trial_values" VALUES(2,1,1,1.0475,'FINITE');
INSERT INTO "trial_values" VALUES(3,2,0,11.8252,'FINITE');
INSERT INTO "trial_values" VALUES(4,2,1,0.9994,'FINITE');
INSERT INTO "trial_values" VALUES(5,3,0,4.8576,'FINITE');
INSERT INTO "trial_values" VALUES(6,3,1,0.9915,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-20 13:45:11.372450','2026-11-20 13:45:11.599344');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-20 13:45:11.664715','2026-11-20 13:45:11.874723');
INSERT INTO "trials" VALUES(3,2,1,'COMPLETE','2026-11-20 13:45:11.953079','2026-11-20 13:45:12.161037');
INSERT INTO "trials" VALUES(4,3,1,'WAITING','2026-11-20 13:45:12.373376',NULL);
CREATE TABLE tuner_claims (
	claim_id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	token VARCHAR(32) NOT NULL, 
	worker VARCHAR(120) NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	leased_until DOUBLE NOT NULL, 
	claimed_at DOUBLE NOT NULL, 
	trial_id INTEGER, 
	trial_number INTEGER, 
	result TEXT, 
	told BOOLEAN NOT NULL, 
	PRIMARY KEY (claim_id), 
	UNIQUE (token)
);
INSERT INTO "tuner_claims" VALUES(1,1,'6c1567f66ef941cbb657659a17be0358','recorder','finished',1.79518237132999944685e+09,1.79518231132999944686e+09,1,0,'{"state": "COMPLETE", "values": [6.336, 1.0475], "attributes": {"stopped_by": "converged", "converged": true, "epochs": 30, "val_loss": 0.2619, "val_mql": 1.0475, "s_per_epoch": 0.2112, "setup_s": 0.1, "backend": "eager", "precision": "fp32", "seed": 2968811710, "contaminated": false, "device": "Example CPU, 2 cores", "device_label": "cores 0, 1", "versions": {"tuner": "0.1.0"}}}',1);
INSERT INTO "tuner_claims" VALUES(2,1,'0d9e173a61e1404780c4d8133ad21226','recorder','finished',1.79518237163400125504e+09,1.79518231163400125496e+09,2,1,'{"state": "COMPLETE", "values": [11.8252, 0.9994], "attributes": {"stopped_by": "converged", "converged": true, "epochs": 34, "val_loss": 0.2498, "val_mql": 0.9994, "s_per_epoch": 0.3478, "setup_s": 0.1, "backend": "eager", "precision": "fp32", "seed": 1835504127, "contaminated": false, "device": "Example CPU, 2 cores", "device_label": "cores 0, 1", "versions": {"tuner": "0.1.0"}}}',1);
INSERT INTO "tuner_claims" VALUES(3,1,'2589ef9cc6214de8883898713b1ed049','recorder','finished',1.79518237191398358342e+09,1.79518231191398358343e+09,3,2,'{"state": "COMPLETE", "values": [4.8576, 0.9915], "attributes": {"stopped_by": "converged", "converged": true, "epochs": 23, "val_loss": 0.2479, "val_mql": 0.9915, "s_per_epoch": 0.2112, "setup_s": 0.1, "backend": "eager", "precision": "fp32", "seed": 2834126987, "contaminated": false, "device": "Example CPU, 2 cores", "device_label": "cores 0, 1", "versions": {"tuner": "0.1.0"}}}',1);
INSERT INTO "tuner_claims" VALUES(4,1,'42ac09878a7a4373b93129828af831d3','host-2','returned',1.79518237231200981137e+09,1.79518231231200981138e+09,4,3,NULL,0);
CREATE TABLE tuner_epochs (
	study_id INTEGER NOT NULL, 
	trial_number INTEGER NOT NULL, 
	claim_id INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	train_loss DOUBLE, 
	val_loss DOUBLE, 
	learning_rate DOUBLE, 
	elapsed_s DOUBLE NOT NULL, 
	PRIMARY KEY (study_id, trial_number, claim_id, epoch)
);
INSERT INTO "tuner_epochs" VALUES(1,0,1,1,1.0,2.0,9.00000000000000083787e-04,3.33333333333333314829e-01);
INSERT INTO "tuner_epochs" VALUES(1,0,1,2,0.5,NULL,8.10000000000000064566e-04,6.66666666666666629659e-01);
INSERT INTO "tuner_epochs" VALUES(1,0,1,3,3.33333333333333314829e-01,6.66666666666666629659e-01,7.29000000000000155687e-04,1.0);
INSERT INTO "tuner_epochs" VALUES(1,0,1,4,0.25,0.5,6.56100000000000064225e-04,1.33333333333333325931e+00);
INSERT INTO "tuner_epochs" VALUES(1,1,2,1,1.0,2.0,9.00000000000000083787e-04,3.33333333333333314829e-01);
INSERT INTO "tuner_epochs" VALUES(1,1,2,2,0.5,NULL,8.10000000000000064566e-04,6.66666666666666629659e-01);
INSERT INTO "tuner_epochs" VALUES(1,1,2,3,3.33333333333333314829e-01,6.66666666666666629659e-01,7.29000000000000155687e-04,1.0);
INSERT INTO "tuner_epochs" VALUES(1,1,2,4,0.25,0.5,6.56100000000000064225e-04,1.33333333333333325931e+00);
INSERT INTO "tuner_epochs" VALUES(1,2,3,1,1.0,2.0,9.00000000000000083787e-04,3.33333333333333314829e-01);
INSERT INTO "tuner_epochs" VALUES(1,2,3,2,0.5,NULL,8.10000000000000064566e-04,6.66666666666666629659e-01);
INSERT INTO "tuner_epochs" VALUES(1,2,3,3,3.33333333333333314829e-01,6.66666666666666629659e-01,7.29000000000000155687e-04,1.0);
INSERT INTO "tuner_epochs" VALUES(1,2,3,4,0.25,0.5,6.56100000000000064225e-04,1.33333333333333325931e+00);
CREATE TABLE tuner_schema (
	version INTEGER NOT NULL
);
INSERT INTO "tuner_schema" VALUES(1);
CREATE TABLE tuner_studies (
	study_id INTEGER NOT NULL, 
	definition TEXT NOT NULL, 
	definition_hash VARCHAR(64) NOT NULL, 
	budget INTEGER NOT NULL, 
	device_model VARCHAR(200), 
	created_at DOUBLE NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "tuner_studies" VALUES(1,'{"architecture": {"model": "rmsnorm", "settings": {"n_blocks": 2}}, "core_change": "channel-first, Conv1d, RMSNorm", "data_hash": "b11a790cd50a359d8c6c3dc0a5f0edc19f485529eb84f78dcb0393c0d1e8ff7e", "defaults": {"batch_size": 256, "dropout": 0.1, "hidden_size": 64, "learning_rate": 0.0001, "weight_decay": 0.0}, "format": 1, "model_source": null, "mql_split": "test", "objectives": ["wall_clock_s", "test_mql"], "seeds_per_trial": 1, "space": {"batch_size": {"high": 1024, "low": 64}, "dropout": {"high": 0.5, "low": 0.0, "scale": "linear", "zero": false}, "hidden_size": {"high": 256, "low": 32}, "learning_rate": {"high": 0.03, "low": 3e-05, "scale": "log", "zero": false}, "weight_decay": {"high": 0.1, "low": 1e-06, "scale": "log", "zero": true}}, "task": {"calendar": ["hour", "day_of_week"], "eval_quantiles": [0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95], "frequency": "h", "future_covariates": [], "horizon": 6, "input_size": 24, "name": "demo", "objective_series": null, "past_covariates": [], "quantiles": [0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99], "source": {"kind": "demo", "rows": 400, "seed": 0}, "split": [0.6, 0.2, 0.2], "static_id": true, "target_columns": ["load", "heat", "flow"]}, "training": {"backend": "auto", "gradient_clip": 1.0, "learning_rate_decay": 0.999, "max_epochs": 200, "min_delta": 1e-05, "patience": 10, "precision": "fp32", "time_limit_s": null}, "variant": "rmsnorm"}','2c1ca9efccac831f757933a5be49c85288daf68a77070149d25ff16c374ce6b1',9,'Example CPU, 2 cores',1.79518231126200556758e+09);
CREATE TABLE tuner_workers (
	worker VARCHAR(120) NOT NULL, 
	study_id INTEGER NOT NULL, 
	host VARCHAR(120) NOT NULL, 
	pid INTEGER NOT NULL, 
	device VARCHAR(200) NOT NULL, 
	device_uuid VARCHAR(120) NOT NULL, 
	started_at DOUBLE NOT NULL, 
	seen_at DOUBLE NOT NULL, 
	trial_number INTEGER, 
	epoch INTEGER, 
	val_loss DOUBLE, 
	stopped BOOLEAN NOT NULL, 
	PRIMARY KEY (worker, study_id)
);
INSERT INTO "tuner_workers" VALUES('host-1',1,'host',1,'cores 0, 1','cpu-0',1.79518231225701117509e+09,1.7951823122690007687e+09,NULL,NULL,NULL,1);
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
CREATE INDEX tuner_claims_by_study ON tuner_claims (study_id, state);
COMMIT;
