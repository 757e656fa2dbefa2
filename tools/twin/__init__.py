"""The compiled league beside the Python functions that it mirrors: which of them have changed since?"""
