//! Which stores a new content goes to: a pure function of the cluster's map, the policy and the client's place.
