package pace

import (
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// The bounds of what makes the pace of windows quicker and slower.
func TestPaceAfterWindows(t *testing.T) {
	for _, test := range []struct {
		was     pace
		pending int
		took    time.Duration
		want    pace
	}{
		{pace{most: 16}, 8, 0, pace{most: 32}},
		{pace{most: 16}, 16, slowWindow, pace{most: 32}},
		{pace{most: 16}, 8, slowWindow / 2, pace{most: 32}},
		{pace{most: 16}, 8, slowWindow/2 + 1, pace{most: 16}}, // too long for half of the requests
		{pace{most: 16}, 7, 0, pace{most: 16}},                // less than a window
		{pace{most: 64}, 32, slowWindow + 1, pace{most: 32, slowed: true}},
		{pace{most: 64}, 5, slowWindow + 1, pace{most: 32, slowed: true}},
		{pace{most: 64, slowed: true, quick: 9}, 64, time.Hour, pace{most: 32, slowed: true}},
		{pace{most: 64, slowed: true, quick: 9}, 64, 0, pace{most: 64, slowed: true, quick: 10}},
		{pace{most: 64, slowed: true, quick: quickInARow - 1}, 64, 0, pace{most: 128, slowed: true}},
		{pace{most: leastPending, slowed: true}, 1, time.Hour, pace{most: leastPending, slowed: true}},
		{pace{most: mostPending}, mostPending, 0, pace{most: mostPending}},
		{pace{most: 64, alone: true}, 64, time.Hour, pace{most: 32, slowed: true, alone: true}},
		{pace{most: 64, alone: true}, 64, 0, pace{most: 128, alone: true}},
	} {
		got := test.was.afterWindow(test.pending, test.took)
		if !got.slowed {
			got.quick = 0 // nobody looks at it
		}
		require.Equal(t, test.want, got, "%+v", test)
	}
}

// The bounds of what makes the pace of calls quicker and slower.
func TestPaceAfterCalls(t *testing.T) {
	testtree.Set(t, &knobs.SlowCall, 100*time.Microsecond)
	for _, c := range []struct {
		was     pace
		pending int
		took    time.Duration
		want    pace
	}{
		{pace{most: 8}, 8, knobs.SlowCall, pace{most: 8}},
		{pace{most: 8}, 8, knobs.SlowCall + 1, pace{most: 8, quick: 1}},
		{pace{most: 8}, 8, slowCall, pace{most: 8, quick: 1}},
		{pace{most: 8}, 8, slowCall + 1, pace{most: 8, slow: 1}},
		{pace{most: 8}, 4, slowCall / 2, pace{most: 8, quick: 1}},
		{pace{most: 8}, 4, slowCall/2 + 1, pace{most: 8}},
		{pace{most: 8, slow: slowInARow - 1}, 8, slowCall, pace{most: 8, quick: 1}},
		{pace{most: 8, slow: slowInARow - 1}, 8, time.Hour, pace{most: perCall, slowed: true}},
		{pace{most: 8, slow: slowAgain - 1}, 8, time.Hour, pace{most: 8, slow: slowAgain}},
		{pace{most: 8, slow: slowAgain - 1, slowed: true}, 8, time.Hour, pace{most: perCall, slowed: true}},
		{pace{most: mostPending, quick: quickInARow - 1}, mostPending, time.Millisecond, pace{most: mostPending}},
	} {
		require.Equal(t, c.want, c.was.afterCall(c.pending, c.took), "%+v, %d, %s", c.was, c.pending, c.took)
	}
}

func TestSizeOfAWindow(t *testing.T) {
	for was, want := range map[pace]int{
		{most: 4}: leastPending, {most: 2 * leastPending}: leastPending, {most: 40}: 20, {most: 2*mostInWindow + 2}: mostInWindow,
		{most: 4, alone: true}: leastPending, {most: 40, alone: true}: 40, {most: mostInWindow + 1, alone: true}: mostInWindow,
	} {
		require.Equal(t, want, was.window(), "%+v", was)
	}
}
