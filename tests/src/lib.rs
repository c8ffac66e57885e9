//! Harness for the behaviour tests.
