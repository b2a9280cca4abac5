package fsinfo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTimes: a time that does not fit into nanoseconds is told from each that does, and from none.
func TestTimes(t *testing.T) {
	fits, far := time.Unix(-1, 5), time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		mod, change, birth time.Time
		want               [3]int64
	}{
		{fits, fits, fits, [3]int64{5 - 1e9, 5 - 1e9, 5 - 1e9}},
		{far, far, far, [3]int64{NoTime, NoTime, 0}},
		{time.Time{}, time.Time{}, time.Time{}, [3]int64{NoTime, 0, 0}},
		{time.Unix(0, 0), time.Unix(0, 0), time.Unix(0, 0), [3]int64{}},
	} {
		var id Identity
		id.SetTimes(tt.mod, tt.change, tt.birth)
		require.Equal(t, tt.want, [3]int64{id.ModTime, id.ChangeTime, id.BirthTime})
		require.Equal(t, max(tt.want[0], tt.want[1], tt.want[2]), id.Newest())
	}
}
