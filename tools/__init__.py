"""Tools of the repository: language, links, twins, the site and the version of SPEC.md."""
