// Package sbom writes the bill of materials of a container image, or of programs, as CycloneDX JSON: the modules of Go programs, the crates of Rust programs, Debian's
// packages, and files that are none of these.
package sbom

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Document is a bill of materials in CycloneDX 1.6, with the fields that this package uses. It has no timestamp, so the same image gives the same
// bytes.
type Document struct {
	BOMFormat    string      `json:"bomFormat"`
	SpecVersion  string      `json:"specVersion"`
	SerialNumber string      `json:"serialNumber"`
	Version      int         `json:"version"`
	Metadata     Metadata    `json:"metadata"`
	Components   []Component `json:"components"`
}

// Metadata names the image or the programs.
type Metadata struct {
	Component Component `json:"component"`
}

// Component is a part of an image or a program.
type Component struct {
	Type       string     `json:"type"`
	Reference  string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	Hashes     []Hash     `json:"hashes,omitempty"`
	Licenses   []License  `json:"licenses,omitempty"`
	PackageURL string     `json:"purl,omitempty"`
	Properties []Property `json:"properties,omitempty"`
}

// Hash is a checksum of a component's file.
type Hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

// License is an SPDX license expression.
type License struct {
	Expression string `json:"expression"`
}

// Property is a name with a value, for data that has no field in CycloneDX.
type Property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// NewDocument returns the document of the image NAME:TAG with a digest.
func NewDocument(name, digest string, components []Component) Document {
	repository, tag := name, ""
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		repository, tag = name[:colon], name[colon+1:]
	}
	short := repository[strings.LastIndex(repository, "/")+1:]
	packageURL := fmt.Sprintf("pkg:oci/%s@%s?repository_url=%s", short, url.QueryEscape(digest), url.QueryEscape(repository))
	if tag != "" {
		packageURL += "&tag=" + url.QueryEscape(tag)
	}
	subject := Component{Type: "container", Reference: packageURL, Name: repository, Version: digest, PackageURL: packageURL}
	return documentOf(subject, digest, components)
}

func documentOf(subject Component, digest string, components []Component) Document {
	slices.SortFunc(components, func(a, b Component) int { return cmp.Compare(a.Reference, b.Reference) })
	components = slices.CompactFunc(components, func(a, b Component) bool { return a.Reference == b.Reference })
	return Document{
		BOMFormat: "CycloneDX", SpecVersion: "1.6", SerialNumber: serialNumber(digest), Version: 1, Components: components,
		Metadata: Metadata{Component: subject},
	}
}

// serialNumber returns a UUID that is derived from the image or the programs (version 8, for application-specific use).
func serialNumber(digest string) string {
	sum := sha256.Sum256([]byte("CycloneDX 1.6 " + digest))
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	text := hex.EncodeToString(id)
	return "urn:uuid:" + strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

// JSON encodes the document.
func (document Document) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(document, "", "  ")
	return append(text, '\n'), err
}
