"""`jobwire conform watch`: one application behind the proxy, with the judge."""
