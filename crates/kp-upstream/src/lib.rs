//! Which peer next, which idle connection, may we retry. Sans-I/O.
