//! NBD: the network block device protocol.
