//! One rule each, read as a story.
