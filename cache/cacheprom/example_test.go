package cacheprom_test

import (
	"fmt"
	"log"
	"testing/fstest"

	"github.com/fileproc/fileproc/cache"
	"github.com/fileproc/fileproc/cache/cacheprom"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func ExampleNew() {
	files, err := cache.New(fstest.MapFS{"a": {}}, cache.Options{Trust: cache.Forever})
	if err != nil {
		log.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(cacheprom.New(files))
	// http.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	n, err := testutil.GatherAndCount(reg, "fileproc_cache_hits_total")
	fmt.Println(n, err)
	// Output: 2 <nil>
}

func ExampleNewResults() {
	files, err := cache.New(fstest.MapFS{"a": {}}, cache.Options{})
	if err != nil {
		log.Fatal(err)
	}
	sizes, err := cache.NewResults(files, cache.ResultOptions[int]{}, func(f cache.File) (int, error) { return len(f.Data), nil })
	if err != nil {
		log.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(cacheprom.New(files), cacheprom.NewResults("sizes", sizes.Stats))
	n, err := testutil.GatherAndCount(reg, "fileproc_cache_hits_total")
	fmt.Println(n, err)
	// Output: 3 <nil>
}
