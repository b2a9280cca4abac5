package incremental

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestShapesAreToldApart: types of one name have different shapes if a field, an element or a key differs, so that no result of another
// type is decoded.
func TestShapesAreToldApart(t *testing.T) {
	t.Parallel()
	type shape func() reflect.Type
	seen := map[string]int{}
	for i, of := range []shape{
		func() reflect.Type { type T int; return reflect.TypeFor[T]() },
		func() reflect.Type { type T string; return reflect.TypeFor[T]() },
		func() reflect.Type { type T []int; return reflect.TypeFor[T]() },
		func() reflect.Type { type T []string; return reflect.TypeFor[T]() },
		func() reflect.Type { type T *int; return reflect.TypeFor[T]() },
		func() reflect.Type { type T *string; return reflect.TypeFor[T]() },
		func() reflect.Type { type T map[string]int; return reflect.TypeFor[T]() },
		func() reflect.Type { type T map[int]int; return reflect.TypeFor[T]() },
		func() reflect.Type { type T map[string]string; return reflect.TypeFor[T]() },
		func() reflect.Type { type T struct{ A int }; return reflect.TypeFor[T]() },
		func() reflect.Type { type T struct{ B int }; return reflect.TypeFor[T]() },
		func() reflect.Type { type T struct{ A string }; return reflect.TypeFor[T]() },
		func() reflect.Type {
			type T struct {
				A int `json:"b"`
			}
			return reflect.TypeFor[T]()
		},
		func() reflect.Type { type T struct{ A, B int }; return reflect.TypeFor[T]() },
		func() reflect.Type {
			type U struct{ A int }
			type T struct{ A U }
			return reflect.TypeFor[T]()
		},
		func() reflect.Type {
			type U struct{ B int }
			type T struct{ A U }
			return reflect.TypeFor[T]()
		},
		func() reflect.Type {
			type T struct{ Next *T }
			return reflect.TypeFor[T]()
		},
	} {
		name := shapeOf(of())
		other, ok := seen[name]
		require.False(t, ok, "%d and %d: %s", i, other, name)
		require.Equal(t, name, shapeOf(of()))
		seen[name] = i
	}
}

type textOfPointer struct{ hidden int }

func (*textOfPointer) MarshalText() ([]byte, error) { return nil, nil }

type textOfValue struct{ hidden int }

func (textOfValue) MarshalJSON() ([]byte, error) { return nil, nil }

type Exported struct{ B int }

// TestWhatJSONLoses: codecOf finds a field that JSON leaves out wherever it is, unless its type has methods of its own.
func TestWhatJSONLoses(t *testing.T) {
	t.Parallel()
	type dash struct {
		A int `json:"-"`
	}
	type hidden struct{ a int }
	type tree struct {
		Sub []tree
		Map map[string]*hidden
	}
	for _, lost := range []reflect.Type{reflect.TypeFor[dash](), reflect.TypeFor[hidden](), reflect.TypeFor[[]hidden](), reflect.TypeFor[map[string][2]hidden](),
		reflect.TypeFor[*hidden](), reflect.TypeFor[struct{ A struct{ B hidden } }](), reflect.TypeFor[tree]()} {
		require.NotEmpty(t, lostByJSON(lost, map[reflect.Type]bool{}), lost)
	}
	for _, kept := range []reflect.Type{reflect.TypeFor[textOfPointer](), reflect.TypeFor[textOfValue](), reflect.TypeFor[*textOfPointer](), reflect.TypeFor[json.Number](),
		reflect.TypeFor[struct{ A, B struct{ C int } }](), reflect.TypeFor[struct {
			A int `json:",omitempty"`
		}](), reflect.TypeFor[struct {
			A        int `json:"Exported"`
			Exported     // whose fields JSON takes, not its name
		}]()} {
		require.Empty(t, lostByJSON(kept, map[reflect.Type]bool{}), kept)
	}
	_ = []any{hidden{}.a, textOfPointer{}.hidden, textOfValue{}.hidden}
}

// TestPlainTextOfJSON: a text is decoded without the preparations of encoding/json, with the same outcome.
func TestPlainTextOfJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`""`: "", `"a"`: "a", `"a b"`: "a b", "\"\x7f\"": "\x7f", "\"\xff\"": "\ufffd", `"é"`: "é", `"\n"`: "\n"} {
		got, err := JSON[string]().Decode([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for _, wrong := range []string{"\"a\x1fb\"", "\"\x00\"", `"a\"`, `""x`} {
		_, err := JSON[string]().Decode([]byte(wrong))
		require.Error(t, err, wrong)
	}
	var text string
	for _, plain := range []string{`""`, `" "`, `"a"`, "\"~\x7f\""} {
		require.True(t, decodePlain([]byte(plain), &text), plain)
	}
	var n int64
	require.True(t, decodePlain([]byte("12"), &n))
	require.False(t, decodePlain([]byte("x"), &n))
	require.EqualValues(t, 12, n)
	var i int
	require.True(t, decodePlain([]byte("12"), &i))
	require.False(t, decodePlain([]byte("x"), &i))
	require.Equal(t, 12, i)
	require.False(t, decodePlain([]byte("\"\x80\""), &text))
}

// TestShapeStays: if the text for a type were another one, no cache file of that type could be used any more.
func TestShapeStays(t *testing.T) {
	t.Parallel()
	require.Equal(t, `.map[string][]int map[.string string].[]int slice of .int int`, shapeOf(reflect.TypeFor[map[string][]int]()))
	require.Equal(t, `.struct { A *int8 "json:\"a\""; B [2]bool } struct{A "json:\"a\"" .*int8 ptr of .int8 int8;B "" .[2]bool array of .bool bool;}`, shapeOf(reflect.TypeFor[struct {
		A *int8 `json:"a"`
		B [2]bool
	}]()))
}

// Lossy is a text that JSON always replaces.
type lossy string

func (l lossy) MarshalJSON() ([]byte, error) { return []byte("\"\ufffd\""), nil }

// Odd is a number that JSON encodes as a text.
type odd int

func (odd) MarshalJSON() ([]byte, error) { return []byte("\"\ufffd\""), nil }

// TestJSONReplaces: a result is not kept if what JSON makes of it has a replacement, and is another value or none at all.
func TestJSONReplaces(t *testing.T) {
	t.Parallel()
	_, err := JSON[lossy]().Append(nil, "\xff")
	require.Equal(t, errNotUTF8, err)
	_, err = JSON[lossy]().Append(nil, "\ufffd")
	require.NoError(t, err)
	for n := range odd(2) { // none of them can be decoded
		_, err = JSON[odd]().Append(nil, n)
		require.Equal(t, errNotUTF8, err)
	}
	_, err = JSON[chan int]().Append(nil, nil)
	require.ErrorContains(t, err, "unsupported")
}

// TestDefaultCodec: results without content take no space, unless the caller says how to encode them.
func TestDefaultCodec(t *testing.T) {
	t.Parallel()
	codec, err := codecOf[struct{}](nil)
	require.NoError(t, err)
	require.Equal(t, nothing[struct{}]{}, codec)
	codec, err = codecOf(JSON[struct{}]())
	require.NoError(t, err)
	require.Equal(t, JSON[struct{}](), codec)
	_, err = codecOf(Gob[struct{ a int }]())
	require.NoError(t, err)
	_, err = codecOf(JSON[struct{ a int }]())
	require.ErrorContains(t, err, "export it")
	_ = struct{ a int }{}.a
}

// TestGobSaysWhatIsWrong: Gob returns an error for a value that cannot be encoded, and for bytes that Gob has not made.
func TestGobSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := Gob[chan int]().Append(nil, nil)
	require.Error(t, err)
	_, err = Gob[int]().Decode([]byte("x"))
	require.Error(t, err)
}
