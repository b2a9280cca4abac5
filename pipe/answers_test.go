package pipe

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoNameIsKept once it has all its answers.
func TestNoNameIsKept(t *testing.T) {
	a := newAnswers(io.Discard, func(error) {})
	defer a.close()
	a.given("a", "a")
	a.given("a", "./a")
	a.skip("a")
	require.True(t, a.isPending("a"))
	a.skip("a")
	require.Empty(t, a.pending)
	require.Empty(t, a.spelled)
}
