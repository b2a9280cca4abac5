package backend

import (
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/stretchr/testify/require"
)

var errBroken = errors.New("broken")

// On a busy machine, any call is slow. No test depends on that.
func init() { knobs.SlowCall = time.Hour }

// Only an error about one entry, which package os gives, lets a listing go on.
func TestErrorsOfAnEntry(t *testing.T) {
	for op, want := range map[string]bool{"fstatat": true, "lstat": true, "readdirent": false, "open": false} {
		require.Equal(t, want, isEntryError(&fs.PathError{Op: op, Err: errBroken}), op)
	}
	require.False(t, isEntryError(errBroken))
	require.False(t, isEntryError(nil))
}
