"""What a study is: search space, study file, definition, policy, objectives and seeds."""
