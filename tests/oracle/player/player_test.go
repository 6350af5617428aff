package main

import (
	"encoding/hex"
	"encoding/json"
	"reflect"
	"testing"
)

func TestBothEncodingsSplitAlike(t *testing.T) {
	// Two replies and a ping: an error with id 2, a publication, an empty message.
	inJSON := `{"id":2,"error":{"code":103,"message":"permission denied"}}` + "\n" +
		`{"push":{"channel":"c","pub":{"data":{"n":1},"offset":7}}}` + "\n{}"
	inProtobuf, err := hex.DecodeString("19" + "0802" + "1215" + "0867" + "1211" + hex.EncodeToString([]byte("permission denied")) +
		"12" + "2210" + "120163" + "220b" + "2207" + hex.EncodeToString([]byte(`{"n":1}`)) + "3007" + "00")
	if err != nil {
		t.Fatal(err)
	}
	left, err := jsonCodec{}.split([]byte(inJSON))
	if err != nil {
		t.Fatal(err)
	}
	right, err := protobufCodec{}.split(inProtobuf)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(left, right) {
		t.Fatalf("JSON %v, Protobuf %v", left, right)
	}
}

func TestSplitRefusesWhatIsNoMessage(t *testing.T) {
	for _, frame := range []string{"", "{}\n\n{}", "[1]", "{} {}", "{", "null"} {
		if _, err := (jsonCodec{}).split([]byte(frame)); err == nil {
			t.Errorf("JSON %q was accepted", frame)
		}
	}
	for _, frame := range []string{"05", "0208", "03c03e01", "ffffffffffffffffffff01", "80"} {
		raw, err := hex.DecodeString(frame)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (protobufCodec{}).split(raw); err == nil {
			t.Errorf("Protobuf %s was accepted", frame)
		}
	}
}

func TestNormalise(t *testing.T) {
	n := &normaliser{replace: map[string]string{"u00001": "{u}", "id-1": "{client:a}"}, epochs: map[string]string{}}
	entry, err := decodeObject([]byte(`{"id":1,"connect":{"client":"id-1","ttl":5,"version":"6.0","data":{"ttl":0},
		"subs":{"open:u00001":{"epoch":"one","offset":0},"b":{"epoch":"one"}}},"error":null}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(n.value("", entry, false))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"connect":{"client":"{client:a}","data":{"ttl":0},` +
		`"subs":{"b":{"epoch":"{epoch 1}"},"open:{u}":{"epoch":"{epoch 1}"}},"ttl":"{ttl}","version":"{version}"},"id":1}`
	if string(got) != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestScriptsLoad(t *testing.T) {
	scripts, err := loadScripts("../scripts")
	if err != nil {
		t.Fatal(err)
	}
	if len(scripts) < 40 {
		t.Fatalf("%d scripts", len(scripts))
	}
}
