c = get_config()  # noqa: F821 - nbgrader's configuration loader provides it
load_subconfig("autograder/nbgrader_config.py")  # noqa: F821
