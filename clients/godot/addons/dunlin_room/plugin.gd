@tool
extends EditorPlugin
## The editor needs nothing of the client. With this file, it lists the plugin and its version.
