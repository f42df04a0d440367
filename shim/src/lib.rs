//! libcushion.so
