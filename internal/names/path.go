package names

import (
	"path/filepath"
	"strings"
)

// LevelsUp returns how many directories above root the path of an ignore file
// leads, and the rest of the path.
func LevelsUp(p string) (n int, rest string) {
	rest = filepath.ToSlash(p)
	for {
		below, up := strings.CutPrefix(rest, "../")
		if !up {
			return n, rest
		}
		n, rest = n+1, strings.TrimLeft(below, "/")
	}
}

// Depth returns how many directories of an fs.FS are above root.
func Depth(root string) int {
	if root == "." {
		return 0
	}
	return strings.Count(root, "/") + 1
}
