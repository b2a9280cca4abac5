//go:build unix && !darwin

package replace

// keepACL does nothing: on Linux the ACL is an extended attribute.
func keepACL(int, int) error { return nil }
