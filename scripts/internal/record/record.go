// Package record has the measured passes that the command bench prints, keeps and makes tables of, as text that benchstat
// reads.
package record

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// A Record is one measured pass of one side, or, if Text is set, a message, such as why there is no measurement. The n-th
// records of all sides are from the same round and are compared with each other.
type Record struct {
	Table   string
	Data    string  // the set, such as flat_100k
	Who     string  // the side
	Version string  // of the side
	Files   int     // processed in the pass
	Wall    float64 // nanoseconds
	CPU     float64 // nanoseconds, user and system; 0 where it is not known
	Text    string

	Commit, Date, Machine string // of the measurement, which the report adds
}

// Side separates the name of a comparison in Who from its side, "ours" or "theirs".
const Side = ": "

// The units of a record. The one of a message has no meaning: benchstat reads no line without a value.
const (
	wall    = "ns/op"
	cpu     = "cpu-ns/op"
	leftOut = "left-out"
)

// configuration returns what stands on lines of its own before a pass, by the lines' keys.
func (r *Record) configuration() map[string]*string {
	return map[string]*string{"set": &r.Data, "side": &r.Who, "version": &r.Version, leftOut: &r.Text,
		"commit": &r.Commit, "date": &r.Date, "machine": &r.Machine}
}

// known are the lines of records.
var known = regexp.MustCompile(`(?m)^(?:(?:set|side|version|left-out|commit|date|machine):.*|Benchmark.*|)$\n?`)

// Write writes records for Read, an operation being a file:
//
//	set: flat_100k
//	side: whole / C loop: ours
//	BenchmarkFloor 100000 1480 ns/op 2960 cpu-ns/op
func Write(w io.Writer, records ...Record) error {
	out, end := benchfmt.NewWriter(w), ""
	for _, r := range records {
		res := &benchfmt.Result{Name: benchfmt.Name(strings.ToUpper(r.Table[:1]) + r.Table[1:]), Iters: max(r.Files, 1)}
		res.Values, end = []benchfmt.Value{{Value: r.Wall / float64(r.Files), Unit: wall}}, ""
		if r.Text != "" {
			res.Values = []benchfmt.Value{{Value: 1, Unit: leftOut}}
		} else if r.CPU > 0 {
			res.Values = append(res.Values, benchfmt.Value{Value: r.CPU / float64(r.Files), Unit: cpu})
		}
		of := r.configuration()
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if text := strings.Join(strings.Fields(*of[key]), " "); text != "" { // on one line
				res.Config = append(res.Config, benchfmt.Config{Key: key, Value: []byte(text), File: true})
				end += key + ":\n"
			}
		}
		if err := out.Write(res); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, end) // what is written next does not inherit it
	return err
}

// Read returns an error if there is anything but records.
func Read(from io.Reader) (records []Record, err error) {
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	if other := known.ReplaceAll(text, nil); len(other) > 0 { // benchfmt would pass over it
		return nil, fmt.Errorf("not a record: %q", other)
	}
	in := benchfmt.NewReader(bytes.NewReader(text), "records")
	for in.Scan() {
		res, ok := in.Result().(*benchfmt.Result)
		if !ok {
			return nil, fmt.Errorf("not a record: %v", in.Result())
		}
		r := Record{Table: strings.ToLower(string(res.Name)), Files: res.Iters}
		for key, value := range r.configuration() {
			*value = res.GetConfig(key)
		}
		for _, v := range res.Values {
			switch cmp.Or(v.OrigUnit, v.Unit) {
			case wall:
				r.Wall = cmp.Or(v.OrigValue, v.Value) * float64(res.Iters)
			case cpu:
				r.CPU = cmp.Or(v.OrigValue, v.Value) * float64(res.Iters)
			}
		}
		if r.Text != "" {
			r.Files = 0
		} else if r.Wall == 0 {
			return nil, fmt.Errorf("%s has no %s", res.Name, wall)
		}
		records = append(records, r)
	}
	if n := strings.Count("\n"+string(text), "\nBenchmark"); n != len(records) {
		return nil, fmt.Errorf("%d of %d passes have no value", n-len(records), n)
	}
	return records, in.Err()
}
