// Package cacheprom gives Prometheus the counters of package cache:
//
//	prometheus.MustRegister(cacheprom.New(files))
//
// The names of the metrics begin with fileproc_cache_.
//
// The package is a module of its own, so that importers of package cache do not depend on
// Prometheus. A program with several caches gives each collector a label:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"fs": "site"}, reg).MustRegister(cacheprom.New(site))
package cacheprom

import (
	"github.com/fileproc/fileproc/cache"
	"github.com/prometheus/client_golang/prometheus"
)

// New returns a collector of files.Stats. Metrics of the field Files have the label
// cache="files", those of Metadata have cache="metadata", and those of Writes have neither.
func New(files *cache.FS) prometheus.Collector {
	data, meta := newCounts("files"), newCounts("metadata")
	return &collector{append(append(data.all(), meta.all()...), writes.all()...), func(ch chan<- prometheus.Metric) {
		s := files.Stats()
		data.collect(ch, s.Files)
		meta.collect(ch, s.Metadata)
		writes.collect(ch, s.Writes)
	}}
}

// NewResults returns a collector of the counters of a cache.Results, whose Stats method is
// stats. The metrics have the label cache with the value name.
func NewResults(name string, stats func() cache.Counts) prometheus.Collector {
	c := newCounts(name)
	return &collector{c.all(), func(ch chan<- prometheus.Metric) { c.collect(ch, stats()) }}
}

type collector struct {
	descs   []*prometheus.Desc
	collect func(chan<- prometheus.Metric)
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) { c.collect(ch) }

// A metric is one number of a T.
type metric[T any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(T) int64
}

func counter[T any](name, help string, labels prometheus.Labels, value func(T) int64) metric[T] {
	return metric[T]{prometheus.NewDesc("fileproc_cache_"+name+"_total", help, nil, labels), prometheus.CounterValue, value}
}

func gauge[T any](name, help string, labels prometheus.Labels, value func(T) int64) metric[T] {
	return metric[T]{prometheus.NewDesc("fileproc_cache_"+name, help, nil, labels), prometheus.GaugeValue, value}
}

// metrics are all numbers of a T.
type metrics[T any] []metric[T]

func (m metrics[T]) all() (descs []*prometheus.Desc) {
	for _, one := range m {
		descs = append(descs, one.desc)
	}
	return descs
}

func (m metrics[T]) collect(ch chan<- prometheus.Metric, of T) {
	for _, one := range m {
		ch <- prometheus.MustNewConstMetric(one.desc, one.kind, float64(one.value(of)))
	}
}

// counts are the numbers of a cache.Counts.
type counts struct {
	metrics[cache.Counts]
	evictions *prometheus.Desc
}

func newCounts(name string) counts {
	type c = cache.Counts
	l := prometheus.Labels{"cache": name}
	return counts{metrics[c]{
		counter("hits", "Values served from memory.", l, func(s c) int64 { return s.Hits }),
		counter("misses", "Values that were not in memory.", l, func(s c) int64 { return s.Misses }),
		counter("checks", "Comparisons of a value with its file.", l, func(s c) int64 { return s.Checks }),
		counter("loads", "Reads of the source.", l, func(s c) int64 { return s.Loads }),
		counter("load_errors", "Loads that failed.", l, func(s c) int64 { return s.LoadErrors }),
		counter("not_cached", "Loads whose value was not cached.", l, func(s c) int64 { return s.NotCached }),
		counter("joined", "Waits for a load that another call had begun.", l, func(s c) int64 { return s.Joined }),
		counter("inserted", "Values cached.", l, func(s c) int64 { return s.Inserted }),
		counter("too_large", "Values larger than the bound of bytes.", l, func(s c) int64 { return s.TooLarge }),
		gauge("entries", "Values in memory.", l, func(s c) int64 { return s.Entries }),
		gauge("size_bytes", "Memory of the values, as the bound of bytes counts it.", l, func(s c) int64 { return s.Bytes }),
	}, prometheus.NewDesc("fileproc_cache_evictions_total", "Values that left the cache, by reason.", []string{"reason"}, l)}
}

func (c counts) all() []*prometheus.Desc { return append(c.metrics.all(), c.evictions) }

func (c counts) collect(ch chan<- prometheus.Metric, s cache.Counts) {
	c.metrics.collect(ch, s)
	for reason, n := range s.Evictions {
		ch <- prometheus.MustNewConstMetric(c.evictions, prometheus.CounterValue, float64(n), reason)
	}
}

type w = cache.WriteStats

var writes = metrics[w]{
	counter("writes", "Files written.", nil, func(s w) int64 { return s.Writes }),
	counter("write_errors", "Writes that failed.", nil, func(s w) int64 { return s.WriteErrors }),
	counter("removes", "Files removed.", nil, func(s w) int64 { return s.Removes }),
	counter("flushes", "Dirty files that a flush has written to the store or removed from it.", nil, func(s w) int64 { return s.Flushes }),
	counter("flush_errors", "Dirty files that a flush could not write or remove.", nil, func(s w) int64 { return s.FlushErrors }),
	counter("discarded", "Dirty files dropped by Discard.", nil, func(s w) int64 { return s.Discarded }),
	counter("superseded", "Dirty files written again or removed before their flush.", nil, func(s w) int64 { return s.Superseded }),
	gauge("dirty_files", "Files that the store does not have yet as they were written.", nil, func(s w) int64 { return s.DirtyFiles }),
	gauge("dirty_bytes", "Memory of the dirty files, in bytes.", nil, func(s w) int64 { return s.DirtyBytes }),
}
