import js from "@eslint/js";
import jsxA11y from "eslint-plugin-jsx-a11y";
import react from "eslint-plugin-react";
import reactHooks from "eslint-plugin-react-hooks";
import globals from "globals";
import ts from "typescript-eslint";

export default ts.config(
  { ignores: ["dist/", "src/api/contract.gen.ts"] },
  js.configs.recommended,
  {
    rules: {
      eqeqeq: "error",
      "no-else-return": "error",
      "no-nested-ternary": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
    },
  },
  {
    files: ["src/**/*.{ts,tsx}"],
    extends: [
      ts.configs.recommendedTypeChecked,
      react.configs.flat.recommended,
      react.configs.flat["jsx-runtime"],
      reactHooks.configs.flat.recommended,
      jsxA11y.flatConfigs.strict,
    ],
    languageOptions: { globals: globals.browser, parserOptions: { projectService: true } },
    settings: { react: { version: "detect" } },
    rules: {
      // Scrolling regions must be focusable, so that keys can scroll them (axe: scrollable-region-focusable).
      "jsx-a11y/no-noninteractive-tabindex": ["error", { roles: ["group", "region"], tags: ["aside", "pre"] }],
      "jsx-a11y/no-interactive-element-to-noninteractive-role": ["error", { canvas: ["img"] }],
      "react-hooks/incompatible-library": "off", // about the React Compiler, which is not used
    },
  },
  { files: ["*.{js,ts}", "browser/**"], languageOptions: { globals: { ...globals.node, ...globals.browser } } },
  { files: ["*.ts"], extends: [ts.configs.recommended] },
);
