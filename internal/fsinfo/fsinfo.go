// Package fsinfo says what can be known of a file from its metadata, and of the
// machine and the file system that keep it.
package fsinfo

import "strings"

// IsLoop reports whether err, from filepath.EvalSymlinks, says that a link leads to
// itself. No platform's error of its own says that: EvalSymlinks has the same text on
// all.
func IsLoop(err error) bool {
	return err != nil && strings.Contains(err.Error(), "too many links")
}
