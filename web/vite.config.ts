import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// Built paths are relative to the page's <base>, which the service sets: see web.go.
export default defineConfig({
  base: "./",
  plugins: [react()],
  build: {
    target: "es2022",
    outDir: "dist",
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    rollupOptions: {
      output: {
        entryFileNames: "assets/[name].[hash].js",
        chunkFileNames: "assets/[name].[hash].js",
        assetFileNames: "assets/[name].[hash][extname]",
      },
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8321" } }, // npx vite, beside a running `sibyl serve`
});
