"""One script a schema version; never changed once a version is out."""
