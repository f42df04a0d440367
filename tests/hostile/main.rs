//! Files, settings and handles that somebody made to do harm: none may end a reader other than by an answer, and none
//! may cost memory or time out of proportion to its length.
//!
//! `bombs` are made by hand, one for each way to ask for much with little. `mutations` changes valid inputs at random: a
//! fixed number from a fixed seed in `make test`; `scripts/fuzz SECONDS [SEED]` for as long as one likes. A failure
//! prints the seed, and leaves the input in `out/fuzz/`.

mod bombs;
mod corpus;
mod measure;
mod mutate;
mod mutations;
mod targets;
