"""What every operator needs; nothing here knows one."""
