// Package record has what the commands of bench measure: as text that benchstat reads, and as tables.
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

// A Record is one measured pass of one side. The n-th records of all sides are from the same round and are compared with each other.
type Record struct {
	Table   string
	Data    string // the set, such as flat_100k
	Who     string // the side
	Version string // of the side
	Files   int    // processed in the pass
	Values  map[string]float64

	Commit, Date, Machine string // of the measurement, which the report adds
}

// The units of times, which are those of a file. Other units are of the pass.
const (
	Wall = "ns/op"
	CPU  = "cpu-ns/op" // user and system
)

// Ours and Theirs end the names of the two sides of a comparison.
const (
	Ours   = ": ours"
	Theirs = ": theirs"
)

// configuration returns what stands on lines of its own before a pass, by the lines' keys.
func (r *Record) configuration() map[string]*string {
	return map[string]*string{"set": &r.Data, "side": &r.Who, "version": &r.Version,
		"commit": &r.Commit, "date": &r.Date, "machine": &r.Machine}
}

// known are the lines of records.
var known = regexp.MustCompile(`(?m)^(?:(?:set|side|version|commit|date|machine):.*|Benchmark.*|)$\n?`)

// Write writes records for Read, an operation being a file:
//
//	set: flat_100k
//	side: whole / C loop: ours
//	BenchmarkFloor 100000 1480 ns/op 2960 cpu-ns/op
func Write(w io.Writer, records ...Record) error {
	out, end := benchfmt.NewWriter(w), ""
	for _, r := range records {
		res := &benchfmt.Result{Name: benchfmt.Name(strings.ToUpper(r.Table[:1]) + r.Table[1:]), Iters: max(r.Files, 1)}
		end = ""
		for _, unit := range slices.Sorted(maps.Keys(r.Values)) {
			res.Values = append(res.Values, benchfmt.Value{Value: r.Values[unit], Unit: unit})
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
		r := Record{Table: strings.ToLower(string(res.Name)), Files: res.Iters, Values: map[string]float64{}}
		for key, value := range r.configuration() {
			*value = res.GetConfig(key)
		}
		for _, v := range res.Values {
			r.Values[cmp.Or(v.OrigUnit, v.Unit)] = cmp.Or(v.OrigValue, v.Value)
		}
		records = append(records, r)
	}
	if n := strings.Count("\n"+string(text), "\nBenchmark"); n != len(records) {
		return nil, fmt.Errorf("%d of %d passes have no value", n-len(records), n)
	}
	return records, in.Err()
}
