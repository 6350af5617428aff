//! What clients and shards say to each other: commands, replies, pushes, codes, and their JSON and Protobuf forms.
