package image

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

const small = "FROM scratch\nCOPY --from=build /image/ /\nUSER 65532:65532\nENTRYPOINT [\"/usr/bin/a\"]\n"

func TestTheLastStageOfADockerfileIsRead(t *testing.T) {
	config, err := parseDockerfile("# a comment\nARG A=b\nFROM golang AS build\nRUN a \\\n  && b\n" + small +
		"WORKDIR /etc/a\nEXPOSE 8080 53/udp\nSTOPSIGNAL SIGTERM\nLABEL title=\"a b\"\nENV TZ=UTC\n" +
		"HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=2 CMD [\"/usr/bin/a\", \"health\"]\nCMD [\"serve\"]\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		User: "65532:65532", Entrypoint: []string{"/usr/bin/a"}, Cmd: []string{"serve"}, WorkingDir: "/etc/a", StopSignal: "SIGTERM",
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "53/udp": {}}, Labels: map[string]string{"title": "a b"}, Env: []string{"TZ=UTC"},
		Healthcheck: &Healthcheck{
			Test: []string{"CMD", "/usr/bin/a", "health"}, Interval: 10 * time.Second, Timeout: 3 * time.Second, StartPeriod: 5 * time.Second, Retries: 2,
		},
	}
	if !reflect.DeepEqual(config, want) {
		t.Errorf("%+v\nwant %+v", config, want)
	}
}

func TestTheRepositorysDockerfilesAreRead(t *testing.T) {
	for _, path := range []string{"../../Dockerfile", "../Dockerfile"} {
		config, err := ReadDockerfile(path)
		if err != nil {
			t.Fatal(err)
		}
		if config.User != "65532:65532" || config.StopSignal != "SIGTERM" || len(config.ExposedPorts) == 0 {
			t.Errorf("%s: %+v", path, config)
		}
	}
}

func TestWhatADockerfileMayNotHave(t *testing.T) {
	for _, wrong := range []struct{ text, message string }{
		{"", "the last stage is not FROM scratch"},
		{small + "FROM debian:12\nCOPY --from=x /image/ /\n", "the last stage is not FROM scratch"},
		{strings.Replace(small, "/image/ /", "/src/a /usr/bin/", 1), "the only copy that is allowed here"},
		{small + "COPY --from=build /image/ /\n", "has 2 COPY instructions"},
		{strings.Replace(small, "COPY --from=build /image/ /\n", "", 1), "has 0 COPY instructions"},
		{strings.Replace(small, "65532:65532", "0", 1), `USER is "0"; set it to a number other than 0`},
		{strings.Replace(small, "65532:65532", "root", 1), `USER is "root"`},
		{strings.Replace(small, "USER 65532:65532\n", "", 1), `USER is ""`},
		{strings.Replace(small, `["/usr/bin/a"]`, "/usr/bin/a", 1), "is not a JSON list; an image without a shell needs that form"},
		{strings.Replace(small, "ENTRYPOINT", "CMD", 1), "ENTRYPOINT is missing"},
		{small + "RUN true\n", "RUN: is not supported in the last stage"},
		{small + "LABEL a\n", "is not NAME=VALUE"},
		{small + "LABEL a=b c=d\n", "write one NAME=VALUE in an instruction"},
		{small + "HEALTHCHECK NONE\n", "has no CMD"},
		{small + "HEALTHCHECK --interval=10 CMD [\"/a\"]\n", "missing unit"},
	} {
		_, err := parseDockerfile(wrong.text)
		if err == nil || !strings.Contains(err.Error(), wrong.message) {
			t.Errorf("%q: %v, want %q", wrong.text, err, wrong.message)
		}
	}
}
