//! Tests of the store as a whole, on simulated disks.

mod at_rest;
mod basic;
mod checkpoint;
mod crash;
mod faults;
mod first_read;
mod leftovers;
mod model;
mod moving;
mod rebuilt;
mod recent;
mod restart;
mod scrubbed;
mod together;
mod world;
