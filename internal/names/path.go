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

// SplitPaths divides files into names and paths. Both keep their order.
func SplitPaths(files []string) (names, paths []string) {
	for _, f := range files {
		if strings.ContainsAny(f, "/"+string(filepath.Separator)) {
			paths = append(paths, f)
		} else {
			names = append(names, f)
		}
	}
	return names, paths
}

// CommonPrefix returns how many bytes at the beginning of both are equal.
func CommonPrefix(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
