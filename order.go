package fileproc

import "cmp"

// comparePaths compares two slash-separated paths name by name, so that what is
// in a directory comes before a sibling whose name begins with the directory's.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		switch {
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		}
		return cmp.Compare(a[i], b[i])
	}
	return cmp.Compare(len(a), len(b))
}
