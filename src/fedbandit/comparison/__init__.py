"""All protocols on the same five instances: what each promises, whether an audit agrees, and which wins where."""
