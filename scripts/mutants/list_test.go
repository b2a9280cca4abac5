package main

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestListIsTrue: each mistake's old code is in its function, once. Planting them takes minutes, which is for the night.
func TestListIsTrue(t *testing.T) {
	all := parse(regexp.MustCompile(""))
	require.NotEmpty(t, all)
	var plans []*plan
	_, err := plantList("../..", all, &plans)
	require.NoError(t, err)
	require.Len(t, plans, len(all))
}
