"""Builders of inputs that cannot be written down: functions, modules, tensors in a special memory layout."""
