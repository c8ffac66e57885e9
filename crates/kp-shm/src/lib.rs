//! What all processes of one kp share, as typed views over atomics.
