//! Behaviour of the readers, decoders and encoders as their users see it, on whole streams of messages.

mod bodies;
mod properties;
mod requests;
mod responses;
mod stream;
