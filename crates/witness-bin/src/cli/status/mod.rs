//! `witness status`: asks every member of the configuration and shows the ring.

mod table;
