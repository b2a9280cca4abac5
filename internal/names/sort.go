package names

import "slices"

// SortUntil sorts s, which may be very long. If the run is stopped, it returns soon and
// leaves s in any order: from then on all elements compare as equal, which
// slices.SortFunc takes for sorted.
func SortUntil[E any](s []E, compare func(a, b E) int, stopped func() bool) {
	calls, over := 0, false
	slices.SortFunc(s, func(a, b E) int {
		if calls++; calls%1024 == 0 {
			over = over || stopped()
		}
		if over {
			return 0
		}
		return compare(a, b)
	})
}
