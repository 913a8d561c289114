"""What people see: figures, terminal, dashboard, files."""
