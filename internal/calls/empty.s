//go:build linux

// Lets functions in this package have no body.
