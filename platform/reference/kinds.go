// Package reference makes the pages of docs/reference from what they describe: the CustomResourceDefinitions, the conditions, the commands and the
// variables of the playbook. `platform/generate` writes them, and a test compares them.
package reference

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"
)

// definition is the part of a CustomResourceDefinition that the page of a kind needs.
type definition struct {
	Spec struct {
		Names    struct{ Kind string }
		Versions []struct {
			Schema struct{ OpenAPIV3Schema schema }
		}
	}
}

type schema struct {
	Description          string
	Type                 string
	Properties           map[string]*schema
	Required             []string
	Items                *schema
	AdditionalProperties *schema
	MaxLength, MaxItems  int
	MaxProperties        int
	IsAmount             bool   `json:"x-kubernetes-int-or-string"`
	Rules                []rule `json:"x-kubernetes-validations"`
}

type rule struct{ Message, MessageExpression, FieldPath string }

// Kind returns the page of a kind, from its definition. A field without a description is an error.
func Kind(text []byte) (string, error) {
	var read definition
	if err := yaml.Unmarshal(text, &read); err != nil {
		return "", err
	}
	root := &read.Spec.Versions[0].Schema.OpenAPIV3Schema
	kind := read.Spec.Names.Kind
	page := &kindPage{refused: map[string][]string{}}
	fmt.Fprintf(page, "# %s\n\n%s\n\n%s\n\n", kind, oneLine(root.Description), notice)
	fmt.Fprintf(page, "A field with a * is required. A value is refused with the message in the last column, after the path of the field. "+
		"`roost validate` prints the same messages without a cluster. It also checks what the definition cannot express, such as the smallest amounts; "+
		"in a cluster, the condition `SpecInvalid` has these messages. Descriptions name other fields with a capital letter. [Conditions](conditions.md) are those of `status.conditions`.\n")
	page.metadata(root)
	page.addRefused("", root.Rules)
	for _, part := range []string{"spec", "status"} {
		page.object(part, root.Properties[part])
	}
	return page.String(), page.check(kind)
}

type kindPage struct {
	strings.Builder
	undescribed []string
	// refused has the messages of rules that an object has about a field below it, by the path of the field. A field that is written is removed.
	refused map[string][]string
	// unreadable are the expressions of messages that message does not understand.
	unreadable []string
}

// check returns an error if the page lacks something that the definition has.
func (page *kindPage) check(kind string) error {
	switch {
	case len(page.undescribed) > 0:
		return fmt.Errorf("%s: these fields have no description: %s", kind, strings.Join(page.undescribed, ", "))
	case len(page.unreadable) > 0:
		return fmt.Errorf("%s: these messages cannot be read: %s", kind, strings.Join(page.unreadable, ", "))
	case len(page.refused) > 0:
		return fmt.Errorf("%s: there are rules about fields that do not exist: %s", kind, strings.Join(slices.Sorted(maps.Keys(page.refused)), ", "))
	}
	return nil
}

// metadata writes the rules about the name, which are those of the root.
func (page *kindPage) metadata(root *schema) {
	if len(root.Rules) == 0 {
		return
	}
	fmt.Fprintf(page, "\n## metadata\n\n| field | type | meaning | refused |\n|---|---|---|---|\n| `name` * | string | The name, and the first part of the names of the objects. | %s |\n"+
		"| `namespace` | string | The namespace, which the operator has to manage. `default` without it. |  |\n", cell(strings.Join(page.rulesAt(root.Rules, ""), "<br>")))
}

// object writes the table of an object's fields, and then those of the objects in it.
func (page *kindPage) object(path string, object *schema) {
	fmt.Fprintf(page, "\n## %s\n\n%s\n\n", path, oneLine(object.Description))
	if rules := page.rulesAt(object.Rules, ""); len(rules) > 0 {
		fmt.Fprintf(page, "Refused:\n\n- %s\n\n", strings.Join(rules, "\n- "))
	}
	page.addRefused(path, object.Rules)
	page.WriteString("| field | type | meaning | refused |\n|---|---|---|---|\n")
	names := slices.Sorted(maps.Keys(object.Properties))
	for _, name := range names {
		field := object.Properties[name]
		if field.Description == "" {
			page.undescribed = append(page.undescribed, path+"."+name)
		}
		mark := ""
		if slices.Contains(object.Required, name) {
			mark = " *"
		}
		refused := append(page.messagesOf(field), page.refused[path+"."+name]...)
		refused = append(refused, field.bounds()...)
		delete(page.refused, path+"."+name)
		fmt.Fprintf(page, "| `%s`%s | %s | %s | %s |\n", name, mark, field.typeName(path+"."+name), cell(withoutName(name, field.Description)), cell(strings.Join(refused, "<br>")))
	}
	for _, name := range names {
		field, below := object.Properties[name], path+"."+name
		if field.Items != nil {
			field, below = field.Items, below+"[]"
		}
		if len(field.Properties) > 0 && name != "conditions" {
			page.object(below, field)
		}
	}
}

// addRefused keeps the messages of rules about fields below an object.
func (page *kindPage) addRefused(path string, rules []rule) {
	for _, rule := range rules {
		if rule.FieldPath != "" {
			field := strings.TrimPrefix(path+rule.FieldPath, ".")
			page.refused[field] = append(page.refused[field], page.message(rule))
		}
	}
}

// typeName names the type of a field, with a link to the table of an object.
func (field *schema) typeName(path string) string {
	switch {
	case field.IsAmount:
		return "amount"
	case len(field.Properties) > 0:
		return fmt.Sprintf("[object](#%s)", anchor(path))
	case field.Items != nil && strings.HasSuffix(path, "status.conditions"):
		return "[list](conditions.md)"
	case field.Items != nil && len(field.Items.Properties) > 0:
		return fmt.Sprintf("[list](#%s)", anchor(path))
	case field.Items != nil:
		return "list of " + field.Items.typeName(path) + "s"
	case field.AdditionalProperties != nil:
		return "map of " + field.AdditionalProperties.typeName(path) + "s"
	case field.Type == "":
		return "object"
	}
	return field.Type
}

// anchor is the anchor that GitHub gives a heading.
func anchor(heading string) string {
	return strings.Map(func(char rune) rune {
		if char == '-' || unicode.IsLetter(char) || unicode.IsDigit(char) {
			return unicode.ToLower(char)
		}
		return -1
	}, heading)
}

// bounds returns the sizes at which a field, or one of its elements, is refused.
func (field *schema) bounds() []string {
	var found []string
	add := func(limit int, text string) {
		if limit > 0 {
			found = append(found, fmt.Sprintf(text, limit))
		}
	}
	add(field.MaxItems, "more than %d")
	add(field.MaxProperties, "more than %d keys")
	add(field.MaxLength, "more than %d characters")
	if field.Items != nil {
		add(field.Items.MaxLength, "an element of more than %d characters")
	}
	if field.AdditionalProperties != nil {
		add(field.AdditionalProperties.MaxLength, "a value of more than %d characters")
	}
	return found
}

// messagesOf returns the messages about a field that holds no object, and about its elements.
func (page *kindPage) messagesOf(field *schema) []string {
	var found []string
	if len(field.Properties) == 0 {
		found = page.rulesAt(field.Rules, "")
	}
	for _, element := range []*schema{field.Items, field.AdditionalProperties} {
		if element != nil && len(element.Properties) == 0 {
			found = append(found, page.rulesAt(element.Rules, "")...)
		}
	}
	return slices.Compact(found)
}

// rulesAt returns the messages of the rules about a field of an object, or about the object itself.
func (page *kindPage) rulesAt(rules []rule, path string) []string {
	var found []string
	for _, rule := range rules {
		if rule.FieldPath == path {
			found = append(found, page.message(rule))
		}
	}
	return found
}

// message returns the message of a rule. An expression such as `'"' + self + '" is not a name; use a-z'` has the value before its text.
func (page *kindPage) message(rule rule) string {
	if rule.Message != "" {
		return rule.Message
	}
	_, text, _ := strings.Cut(rule.MessageExpression, ` + '" `)
	text, _, _ = strings.Cut(text, "' + self")
	text = strings.TrimSpace(strings.TrimSuffix(text, "'"))
	if text == "" {
		page.unreadable = append(page.unreadable, rule.MessageExpression)
	}
	return text
}

// withoutName removes `Name is` from the beginning of a description, because the first column has the name.
func withoutName(name, description string) string {
	first, rest, _ := strings.Cut(oneLine(description), " ")
	verb, rest, _ := strings.Cut(rest, " ")
	if strings.EqualFold(first, name) && (verb == "is" || verb == "are") {
		return upper(rest)
	}
	return oneLine(description)
}

func upper(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// cell returns a text for a cell of a table.
func cell(text string) string { return strings.ReplaceAll(oneLine(text), "|", `\|`) }
