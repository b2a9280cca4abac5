package cacheprom

import (
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fileproc/fileproc/cache"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// store fails for one name.
type store struct{}

func (store) WriteFile(name string, data []byte) (fs.FileInfo, error) {
	if name == "bad" {
		return nil, errors.New("bad")
	}
	return nil, nil
}

func (store) Remove(string) error { return nil }

func newFS(t *testing.T, opts cache.Options) *cache.FS {
	opts.Store, opts.Trust = store{}, cache.Forever
	files, err := cache.New(fstest.MapFS{"a": {Data: []byte("1")}, "b": {}, "c": {}, "d/e": {}}, opts)
	require.NoError(t, err)
	return files
}

// TestExact: each number of Stats is that of its metric, and there is no other metric.
func TestExact(t *testing.T) {
	files := newFS(t, cache.Options{MaxEntries: 2, Write: cache.WriteBack, FlushInterval: cache.Forever})
	for _, name := range []string{"a", "a", "b", "c", "none", "a"} {
		_, _ = files.ReadFile(name)
	}
	files.Invalidate("a")
	_, err := files.ReadDir("d")
	require.NoError(t, err)
	_, err = files.Stat("d/e")
	require.NoError(t, err)
	for _, name := range []string{"good", "good", "bad", "x"} {
		require.NoError(t, files.WriteFile(name, []byte("data")))
	}
	require.NoError(t, files.Remove("x"))
	require.Error(t, files.WriteFile("/", nil))
	require.Error(t, files.Flush())

	words, err := cache.NewResults(files, cache.ResultOptions[int]{}, func(f cache.File) (int, error) { return len(f.Data), nil })
	require.NoError(t, err)
	_, err = words.Load("b")
	require.NoError(t, err)

	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(New(files), NewResults("words", words.Stats))
	families, err := reg.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			key := strings.TrimPrefix(f.GetName(), "fileproc_cache_")
			for _, l := range m.Label {
				key += " " + l.GetValue()
			}
			got[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	want := map[string]float64{}
	add := func(of any, suffix string) {
		b, err := json.Marshal(of)
		require.NoError(t, err)
		var fields map[string]any
		require.NoError(t, json.Unmarshal(b, &fields))
		for name, value := range fields {
			if name == "evictions" {
				for reason, n := range value.(map[string]any) {
					want["evictions_total"+suffix+" "+reason] = n.(float64)
				}
				continue
			}
			metric := map[string]string{"bytes": "size_bytes", "entries": "entries", "dirtyFiles": "dirty_files", "dirtyBytes": "dirty_bytes"}[name]
			if metric == "" {
				for _, r := range name {
					if r >= 'A' && r <= 'Z' {
						metric += "_"
					}
					metric += strings.ToLower(string(r))
				}
				metric += "_total"
			}
			want[metric+suffix] = value.(float64)
		}
	}
	s := files.Stats()
	add(s.Files, " files")
	add(s.Metadata, " metadata")
	add(s.Writes, "")
	add(words.Stats(), " words")
	require.Equal(t, want, got)
	for _, name := range []string{"hits_total files", "misses_total files", "evictions_total files entries", "load_errors_total files",
		"flushes_total", "flush_errors_total", "dirty_files", "dirty_bytes", "write_errors_total", "superseded_total", "removes_total",
		"loads_total words"} {
		require.NotZero(t, got[name], name)
	}
}

func TestLint(t *testing.T) {
	problems, err := testutil.CollectAndLint(New(newFS(t, cache.Options{})))
	require.NoError(t, err)
	require.Empty(t, problems)
}

// TestSeveralCaches: several caches in one registry have a label each.
func TestSeveralCaches(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for _, name := range []string{"one", "two"} {
		prometheus.WrapRegistererWith(prometheus.Labels{"fs": name}, reg).MustRegister(New(newFS(t, cache.Options{})))
	}
	n, err := testutil.GatherAndCount(reg, "fileproc_cache_hits_total")
	require.NoError(t, err)
	require.Equal(t, 4, n)
	require.Error(t, func() error {
		err := prometheus.NewRegistry()
		c := New(newFS(t, cache.Options{}))
		return errors.Join(err.Register(c), err.Register(New(newFS(t, cache.Options{}))))
	}(), "the same names twice")
}
