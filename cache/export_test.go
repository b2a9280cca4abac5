package cache

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// rounds returns how often a test repeats what it does: as often as the variable
// says, else n times, or a tenth of that with -short.
func rounds(t *testing.T, variable string, n int) int {
	if testing.Short() {
		n = (n + 9) / 10
	}
	if s := os.Getenv(variable); s != "" {
		_, err := fmt.Sscan(s, &n)
		require.NoError(t, err, variable)
	}
	return n
}

// set makes v the value of key.
func (e *engine[V]) set(key string, v V, l loaded) { e.setUnlessDropped(key, v, l, e.drops(key)) }
